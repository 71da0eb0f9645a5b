-- Every lane that has a row, but those of tenants that rest, by skipping from lane to lane along the index: costs
-- a descent per lane, not a look at every job. $1 the most to list.
WITH RECURSIVE lane AS (
    (SELECT queue, tenant_id, priority FROM tenure.job ORDER BY queue, tenant_id, priority LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id, next.priority
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id, j.priority FROM tenure.job j
        WHERE (j.queue, j.tenant_id, j.priority) > (lane.queue, lane.tenant_id, lane.priority)
        ORDER BY j.queue, j.tenant_id, j.priority
        LIMIT 1) AS next)
SELECT queue, tenant_id, priority FROM lane
WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
LIMIT $1;
