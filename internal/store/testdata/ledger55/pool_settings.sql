-- The setting by which is seen whether those that a connection is opened with have reached its session,
-- in ms, and which session that is.
SELECT (SELECT setting FROM pg_settings WHERE name = 'lock_timeout') AS lock_timeout, pg_backend_pid() AS pid;
