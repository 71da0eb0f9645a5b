-- The limits of a pool as an operator sees them, but for those that tenants have left behind: with
-- how many jobs are in flight under a tenant's own, but for those of keys, in how many µs its bucket
-- is full again, and, with what is for all of a tenant's jobs, how many of these may wait.
WITH rule AS (
    SELECT l.tenant_id, l.scope, l.name, CASE WHEN l.scope = 'tenant' AND l.tenant_id <> '' THEN CASE WHEN t.max_running IS NOT NULL THEN greatest(t.max_running, 1) END ELSE l.max_running END AS most,
           l.rate, l.per_ms, l.burst, CASE WHEN l.scope = 'tenant' THEN t.max_waiting END AS waiting
    FROM tenure.job_limit l LEFT JOIN tenure.tenant t ON t.tenant_id = l.tenant_id
    WHERE t.state IS DISTINCT FROM 'moved'
    UNION ALL
    SELECT t.tenant_id, 'tenant', '', CASE WHEN t.max_running IS NOT NULL THEN greatest(t.max_running, 1) END, NULL, NULL, NULL, t.max_waiting
    FROM tenure.tenant t
    WHERE (t.max_running IS NOT NULL OR t.max_waiting IS NOT NULL) AND t.state <> 'moved'
      AND NOT EXISTS (SELECT FROM tenure.job_limit l WHERE l.tenant_id = t.tenant_id AND l.scope = 'tenant')),
flying AS MATERIALIZED (
    SELECT job.tenant_id, job.queue, job.kind, count(*) AS n
    FROM tenure.claim c
    CROSS JOIN unnest(c.job_ids) AS run (id)
    CROSS JOIN LATERAL (SELECT j.tenant_id, j.queue, j.kind FROM tenure.job j WHERE j.id = run.id AND j.turn = c.turn OFFSET 0) job
    GROUP BY job.tenant_id, job.queue, job.kind)
SELECT r.tenant_id, r.scope, r.name, coalesce(r.most, 0), coalesce(r.rate, 0), coalesce(r.per_ms, 0), coalesce(r.burst, 0),
       (SELECT coalesce(sum(f.n), 0) FROM flying f
        WHERE f.tenant_id = r.tenant_id AND r.name = CASE r.scope WHEN 'kind' THEN f.kind WHEN 'queue' THEN f.queue WHEN 'tenant' THEN '' END)::integer AS flying,
       coalesce((SELECT ceil(extract(epoch FROM b.full_at - clock_timestamp()) * 1000000) FROM tenure.rate_bucket b
                 WHERE (b.tenant_id, b.scope, b.name) = (r.tenant_id, r.scope, r.name)), 0)::bigint AS full_in, coalesce(r.waiting, 0)
FROM rule r
ORDER BY r.tenant_id, array_position('{tenant,queue,kind,key}', r.scope), r.name;
