-- Whom the migration of this database waits for just now: of those who keep its session from a lock, the one whose
-- transaction is the oldest. No row: for nobody. When a transaction began is shown to its own user and to few others.
SELECT a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''),
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds, false AS uses_the_ledger
FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure migrate' OFFSET 0) m
CROSS JOIN LATERAL unnest(pg_blocking_pids(m.pid)) AS blocking (pid)
JOIN pg_stat_activity a ON a.pid = blocking.pid
ORDER BY a.xact_start LIMIT 1;
