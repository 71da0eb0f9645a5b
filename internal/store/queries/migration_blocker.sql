-- The oldest transaction of others that holds a lock on one of the ledger's tables: a
-- migration waits for it.
SELECT a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''),
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'relation' AND l.granted AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.relation IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = to_regnamespace('tenure'))
ORDER BY a.xact_start LIMIT 1;
