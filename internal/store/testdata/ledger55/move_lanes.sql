-- The lanes of one tenant, by skipping from queue to queue. $1 tenant.
WITH RECURSIVE q AS (
    (SELECT queue FROM tenure.job ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.queue
    FROM q CROSS JOIN LATERAL (
        SELECT j.queue FROM tenure.job j WHERE j.queue > q.queue ORDER BY j.queue LIMIT 1) AS next)
SELECT q.queue, lane.priority
FROM q CROSS JOIN LATERAL (
    SELECT DISTINCT j.priority FROM tenure.job j WHERE j.queue = q.queue AND j.tenant_id = $1) AS lane
ORDER BY q.queue, lane.priority DESC;
