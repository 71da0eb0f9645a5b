-- How many jobs wait, and for how long the oldest has, by kind and by tenant, without those that nodes
-- have in hand. A sample of the table's pages is read, or all of it, up to some number of jobs.
-- $1 the pages, in percent; $2 the most jobs to look at.
WITH flying AS MATERIALIZED (
    SELECT run.id FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)),
seen AS MATERIALIZED (
    SELECT j.id, j.kind, j.tenant_id, coalesce(j.ready_at, j.created_at) AS ready_at
    FROM tenure.job j TABLESAMPLE SYSTEM ($1::real)
    LIMIT $2::bigint + (SELECT count(*) FROM flying))
SELECT s.kind, s.tenant_id, count(*), coalesce(extract(epoch FROM statement_timestamp() - min(s.ready_at) FILTER (WHERE isfinite(s.ready_at))), 0)::double precision AS oldest
FROM seen s
WHERE s.id NOT IN (SELECT f.id FROM flying f) -- which is hashed also where joins are not
GROUP BY GROUPING SETS ((s.kind), (s.tenant_id));
