-- Whether the settings that a lock's connection is opened with have reached the session, and
-- which session that is.
SELECT current_setting('lock_timeout') = '2s' AND current_setting('enable_seqscan') = 'off' AS passed,
       pg_backend_pid() AS pid;
