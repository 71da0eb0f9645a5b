-- The transactions that are open in this database, prepared ones among them. Each holds
-- a lock on its own number from its very beginning, before it has a snapshot or an id,
-- and everybody may see that.
SELECT l.virtualtransaction || ' ' || l.pid AS number
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND a.datname = current_database() AND a.usesysid IS NOT NULL AND l.pid <> pg_backend_pid()
UNION ALL
SELECT 'prepared ' || p.transaction::text FROM pg_prepared_xacts p WHERE p.database = current_database();
