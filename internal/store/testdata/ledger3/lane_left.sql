-- Tenants that have left this pool and have jobs waiting here all the same, by whoever
-- did not know, and where they went; by skipping along the index.
WITH RECURSIVE lane AS (
    (SELECT queue, tenant_id FROM tenure.job ORDER BY queue, tenant_id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id FROM tenure.job j
        WHERE (j.queue, j.tenant_id) > (lane.queue, lane.tenant_id)
        ORDER BY j.queue, j.tenant_id
        LIMIT 1) AS next)
SELECT t.tenant_id, t.state, t.other_pool, t.frozen
FROM tenure.tenant t
WHERE t.state = 'moved' AND t.tenant_id IN (SELECT tenant_id FROM lane)
ORDER BY t.tenant_id;
