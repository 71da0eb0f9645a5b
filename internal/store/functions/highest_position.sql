-- The highest position among the waiting jobs, by skipping from lane to lane.
CREATE OR REPLACE FUNCTION tenure.highest_position() RETURNS bigint
    LANGUAGE sql STABLE SET search_path = '' AS $$
    WITH RECURSIVE lane AS (
        (SELECT queue, tenant_id, priority FROM tenure.job ORDER BY queue, tenant_id, priority LIMIT 1)
        UNION ALL
        SELECT next.queue, next.tenant_id, next.priority
        FROM lane CROSS JOIN LATERAL (
            SELECT j.queue, j.tenant_id, j.priority FROM tenure.job j
            WHERE (j.queue, j.tenant_id, j.priority) > (lane.queue, lane.tenant_id, lane.priority)
            ORDER BY j.queue, j.tenant_id, j.priority
            LIMIT 1) AS next)
    SELECT max(last.position)
    FROM lane CROSS JOIN LATERAL (
        SELECT j.position FROM tenure.job j
        WHERE j.queue = lane.queue AND j.tenant_id = lane.tenant_id AND j.priority = lane.priority
        ORDER BY j.position DESC
        LIMIT 1) AS last;
$$;
