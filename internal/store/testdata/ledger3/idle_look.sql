-- Whether anything waits in a pool that was idle, in how many ms the next timer is due
-- (null: there is none), and whether there are claims. Tenants that rest do not count.
WITH RECURSIVE lane AS (
    (SELECT queue, tenant_id FROM tenure.job ORDER BY queue, tenant_id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id FROM tenure.job j
        WHERE (j.queue, j.tenant_id) > (lane.queue, lane.tenant_id)
        ORDER BY j.queue, j.tenant_id
        LIMIT 1) AS next)
SELECT EXISTS (SELECT FROM lane WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)) AS waiting,
       (SELECT extract(epoch FROM due_at - clock_timestamp()) * 1000
        FROM tenure.timer_job
        WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
        ORDER BY due_at LIMIT 1)::bigint AS due_ms,
       EXISTS (SELECT FROM tenure.claim) AS claimed;
