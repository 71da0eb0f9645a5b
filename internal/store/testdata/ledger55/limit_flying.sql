-- The jobs in flight that limits count, by tenant, queue and kind. They are looked up once, one by
-- one, whatever the plan: not for each limit, and not if there is none. $1 queues and $2 kinds that have one
-- in the whole cluster.
WITH flying AS MATERIALIZED (
    SELECT job.tenant_id, job.queue, job.kind, array_agg(run.id) AS ids, array_agg(c.turn) AS turns
    FROM tenure.claim c
    CROSS JOIN unnest(c.job_ids) AS run (id)
    CROSS JOIN LATERAL (SELECT j.tenant_id, j.queue, j.kind FROM tenure.job j WHERE j.id = run.id AND j.turn = c.turn OFFSET 0) job
    WHERE cardinality($1::text[]) > 0 OR cardinality($2::text[]) > 0
       OR EXISTS (SELECT FROM tenure.tenant WHERE max_running IS NOT NULL) OR EXISTS (SELECT FROM tenure.job_limit WHERE max_running IS NOT NULL)
    GROUP BY job.tenant_id, job.queue, job.kind)
SELECT f.tenant_id, f.queue, f.kind, f.ids, f.turns
FROM flying f
WHERE f.queue = ANY ($1) OR f.kind = ANY ($2)
   OR f.tenant_id IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.max_running IS NOT NULL)
   OR EXISTS (SELECT FROM tenure.job_limit l
              WHERE l.tenant_id IN (f.tenant_id, '') AND l.max_running IS NOT NULL
                AND l.name = CASE l.scope WHEN 'kind' THEN f.kind WHEN 'queue' THEN f.queue ELSE '' END);
