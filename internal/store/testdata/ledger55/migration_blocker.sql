-- The oldest transaction of others that a migration waits for: of those that hold a lock on one of the
-- ledger's tables or, when there is none, of those that have read or written in this database, which
-- an index that is made while jobs run waits for. When those began, and whether they have read, is shown to few. The table of migrations is locked by migrate itself (migration_hold).
SELECT a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''),
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds, holds.a_lock AS uses_the_ledger
FROM pg_stat_activity a
CROSS JOIN LATERAL (SELECT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.granted AND l.database = a.datid
      AND l.relation IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = to_regnamespace('tenure') AND c.relname <> 'migration')) AS a_lock) holds
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND (holds.a_lock OR a.backend_type = 'client backend' AND a.xact_start IS NOT NULL AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL)
ORDER BY holds.a_lock DESC, a.xact_start LIMIT 1;
