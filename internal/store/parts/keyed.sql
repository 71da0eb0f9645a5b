-- A job for external workers that waits and has an exclusive key.
j.exclusive_key IS NOT NULL AND j.lock_expires_at IS NULL AND j.due_at IS NULL
