-- The next $1 lanes that have a row, behind the lane $3, $4, $5, by skipping from lane to lane along the index: costs
-- a descent per lane, not a look at every job. Of a tenant that has more of them $2 are listed, others each
-- time, and none of those that rest. n counts the lanes, and the last one of $1 is returned in any case.
WITH RECURSIVE lane AS (
    (SELECT queue, tenant_id, priority, 1::bigint AS n FROM tenure.job
     WHERE (queue, tenant_id, priority) > ($3::text, $4::text, $5::smallint)
     ORDER BY queue, tenant_id, priority LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id, next.priority, lane.n + 1
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id, j.priority FROM tenure.job j
        WHERE (j.queue, j.tenant_id, j.priority) > (lane.queue, lane.tenant_id, lane.priority)
        ORDER BY j.queue, j.tenant_id, j.priority
        LIMIT 1) AS next
    WHERE lane.n < $1),
ranked AS (
    SELECT lane.*, row_number() OVER (PARTITION BY tenant_id ORDER BY random()) <= $2
        AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen) AS listed
    FROM lane)
SELECT queue, tenant_id, priority, n, listed FROM ranked
WHERE listed OR n = $1
ORDER BY n;
