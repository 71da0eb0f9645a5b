-- The queues that have jobs, each found by skipping to it along the index, that are some kind's, or that are frozen: how many wait, counted up to $1,
-- how many nodes have in hand, for how long the oldest that was counted could have started, and of how many
-- tenants those are. Jobs that wait for workers outside the cluster wait, too; of all queues $1 are counted at most. $2
-- tenants, null: all.
WITH RECURSIVE queue AS (
    (SELECT queue FROM tenure.job ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM tenure.job j WHERE j.queue > q.queue ORDER BY j.queue LIMIT 1)
    FROM queue q WHERE q.queue IS NOT NULL),
external AS MATERIALIZED (
    SELECT queue, coalesce(ready_at, created_at) AS ready_at, tenant_id FROM tenure.external_job WHERE lock_expires_at IS NULL AND due_at IS NULL LIMIT $1),
named AS (
    SELECT queue FROM queue UNION SELECT queue FROM external UNION SELECT queue FROM tenure.kind_queue
    UNION SELECT name FROM tenure.frozen WHERE scope = 'queue'),
flying AS MATERIALIZED (
    SELECT DISTINCT j.id, j.queue, j.tenant_id FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
    JOIN tenure.job j ON j.id = run.id)
SELECT q.queue, w.jobs AS waiting,
       (SELECT count(*) FROM flying f WHERE f.queue = q.queue AND ($2::text[] IS NULL OR f.tenant_id = ANY ($2))) AS running,
       coalesce(CASE WHEN isfinite(w.oldest) THEN extract(epoch FROM clock_timestamp() - w.oldest) END, 0)::double precision AS oldest, w.tenants,
       ARRAY(SELECT k.kind FROM tenure.kind_queue k WHERE k.queue = q.queue ORDER BY k.kind) AS kinds, f.since
FROM named q
LEFT JOIN tenure.frozen f ON f.scope = 'queue' AND f.name = q.queue
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(s.ready_at) AS oldest, count(DISTINCT s.tenant_id) AS tenants
    FROM ((SELECT coalesce(j.ready_at, j.created_at) AS ready_at, j.tenant_id FROM tenure.job j
           WHERE j.queue = q.queue AND ($2::text[] IS NULL OR j.tenant_id = ANY ($2)) AND j.id NOT IN (SELECT f.id FROM flying f)
           LIMIT $1)
          UNION ALL
          SELECT e.ready_at, e.tenant_id FROM external e WHERE e.queue = q.queue AND ($2 IS NULL OR e.tenant_id = ANY ($2))) s) w
WHERE q.queue IS NOT NULL
ORDER BY q.queue;
