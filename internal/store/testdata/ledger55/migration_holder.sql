-- Who has such a lock on table $1 of the ledger as migration_hold and grant_lock wait for.
SELECT a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::double precision AS seconds
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'relation' AND l.granted AND l.relation = to_regclass($1)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY a.xact_start LIMIT 1;
