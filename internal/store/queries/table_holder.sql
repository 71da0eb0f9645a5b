-- Who has for longest such a lock on table $1 of the ledger as migration_hold and grant_lock wait for. '': on any of its
-- tables, such a one as keeps jobs from being added, claimed or finished, or one that keeps sessions waiting who wait for no
-- other, as a long SELECT does those behind an ALTER TABLE. pid 0: a prepared transaction. waiting: how many sessions wait for
-- a lock on the table. When a transaction began is shown to its own user and to few others.
WITH own AS MATERIALIZED (
    SELECT c.oid, 'tenure.' || c.relname AS name, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AS database
    FROM pg_class c
    WHERE CASE $1 WHEN '' THEN c.relnamespace = to_regnamespace('tenure') AND c.relkind IN ('r', 'p') ELSE c.oid = to_regclass($1) END),
locks AS MATERIALIZED (
    SELECT coalesce(l.pid, 0) AS pid, own.name, l.mode, l.granted
    FROM pg_locks l JOIN own ON (own.oid, own.database) = (l.relation, l.database)
    WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()),
holds AS (
    SELECT pid, name FROM locks
    WHERE granted AND (mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') OR mode = 'ShareUpdateExclusiveLock' AND $1 <> '')
    UNION
    SELECT b.pid, w.name FROM locks w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid)
    WHERE NOT w.granted AND b.pid NOT IN (SELECT pid FROM locks WHERE NOT granted))
SELECT h.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::double precision AS seconds,
       h.name AS held, (SELECT count(*) FROM locks w WHERE w.name = h.name AND NOT w.granted) AS waiting
FROM holds h LEFT JOIN pg_stat_activity a ON a.pid = h.pid
WHERE h.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY waiting DESC, a.xact_start LIMIT 1;
