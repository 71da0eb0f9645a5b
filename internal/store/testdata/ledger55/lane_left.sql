-- Tenants that have left this pool and have jobs waiting here all the same, by anyone who
-- did not know, and where they went; by skipping along the index. Or what their jobs await stayed here,
-- as a program moved them that does not know of that.
WITH RECURSIVE lane AS (
    (SELECT queue, tenant_id FROM tenure.job ORDER BY queue, tenant_id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id FROM tenure.job j
        WHERE (j.queue, j.tenant_id) > (lane.queue, lane.tenant_id)
        ORDER BY j.queue, j.tenant_id
        LIMIT 1) AS next)
SELECT t.tenant_id, t.state, t.other_pool, t.frozen, false AS held
FROM tenure.tenant t
WHERE t.state = 'moved'
  AND (t.tenant_id IN (SELECT tenant_id FROM lane) OR EXISTS (SELECT FROM tenure.awaiting w WHERE w.tenant_id = t.tenant_id))
ORDER BY t.tenant_id;
