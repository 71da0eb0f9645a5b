-- How many jobs wait, and for how long the oldest has, by kind and by tenant, without those that nodes
-- have in hand. A sample of the table's pages is read, or all of it, up to some number of jobs.
-- $1 the pages, in percent; $2 the most jobs to look at; $3 those of workers outside the cluster, and no others.
WITH flying AS MATERIALIZED (
    SELECT unnest(job_ids) AS id FROM tenure.claim),
seen AS MATERIALIZED (
    (SELECT j.id, j.kind, j.tenant_id, coalesce(j.ready_at, j.created_at) AS ready_at
     FROM tenure.job j TABLESAMPLE SYSTEM ($1::real)
     WHERE NOT $3::boolean
     LIMIT $2::bigint + (SELECT count(*) FROM flying))
    UNION ALL
    (SELECT e.id, e.kind, e.tenant_id, coalesce(e.ready_at, e.created_at)
     FROM tenure.external_job e TABLESAMPLE SYSTEM ($1)
     WHERE $3 AND $1 < 100 AND e.lock_expires_at IS NULL AND e.due_at IS NULL
     LIMIT $2)
    UNION ALL -- by their index: most of a large table may be put off, or locked
    (SELECT e.id, e.kind, e.tenant_id, coalesce(e.ready_at, e.created_at)
     FROM tenure.external_job e
     WHERE $3 AND $1 = 100 AND e.lock_expires_at IS NULL AND e.due_at IS NULL
     LIMIT $2))
SELECT s.kind, s.tenant_id, count(*), coalesce(extract(epoch FROM statement_timestamp() - min(s.ready_at) FILTER (WHERE isfinite(s.ready_at))), 0)::double precision AS oldest
FROM seen s
WHERE s.id NOT IN (SELECT f.id FROM flying f) -- which is hashed also where joins are not
GROUP BY GROUPING SETS ((s.kind), (s.tenant_id));
