-- What state an external_job is in.
CASE WHEN lock_expires_at > clock_timestamp() THEN 'locked' WHEN due_at IS NULL OR due_at <= clock_timestamp() THEN 'waiting'
     WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END
