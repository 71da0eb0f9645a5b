-- The statements that give the days of finished jobs the indexes that were made for days to come only,
-- in their order, those of the newest day first: for all days in one, jobs could not finish for as long as that
-- takes. What an earlier try has left unfinished is made again. An index is made while jobs finish, and
-- may wait for older transactions for two minutes, as nobody waits for it then. And those that give these
-- days a replica identity, which a partition does not have of its table. At last the one that removes an index of all
-- days whose place another has taken. No row: none is missing.
SELECT missing.sql
FROM (
SELECT day.relname AS day, whole.relname AS whole, step.n, step.sql
FROM pg_index i
JOIN pg_class whole ON whole.oid = i.indexrelid
JOIN pg_inherits has ON has.inhparent = i.indrelid
JOIN pg_class day ON day.oid = has.inhrelid
CROSS JOIN LATERAL (SELECT replace(whole.relname, 'completed_job', day.relname) AS name) of
LEFT JOIN pg_class begun ON begun.relnamespace = day.relnamespace AND begun.relname = of.name
LEFT JOIN pg_index state ON state.indexrelid = begun.oid
CROSS JOIN LATERAL (VALUES
    (1, 'SET lock_timeout = ''2min'''),
    (2, CASE WHEN NOT state.indisvalid THEN format('DROP INDEX CONCURRENTLY tenure.%I', of.name) END),
    (3, CASE WHEN state.indisvalid IS NOT TRUE THEN regexp_replace(pg_get_indexdef(i.indexrelid), '^CREATE INDEX \S+ ON ONLY \S+', format('CREATE INDEX CONCURRENTLY %I ON tenure.%I', of.name, day.relname)) END),
    (4, 'RESET lock_timeout'),
    (5, format('ALTER INDEX tenure.%I ATTACH PARTITION tenure.%I', whole.relname, of.name))) AS step (n, sql)
WHERE i.indrelid = 'tenure.completed_job'::regclass AND NOT i.indisvalid AND step.sql IS NOT NULL
  AND NOT EXISTS (SELECT FROM pg_inherits a JOIN pg_index d ON d.indexrelid = a.inhrelid WHERE a.inhparent = i.indexrelid AND d.indrelid = day.oid)
UNION ALL
SELECT day.relname, NULL, 0, format('ALTER TABLE tenure.%I REPLICA IDENTITY FULL', day.relname)
FROM pg_inherits has JOIN pg_class day ON day.oid = has.inhrelid
WHERE has.inhparent = 'tenure.completed_job'::regclass AND day.relreplident = 'd'
UNION ALL
SELECT '', NULL, 0, 'DROP INDEX tenure.completed_job_finished' WHERE to_regclass('tenure.completed_job_finished') IS NOT NULL) missing
ORDER BY missing.whole IS NULL, missing.day DESC, missing.whole, missing.n;
