-- Notes of which tenants as many jobs wait, or run, as may, and of which no longer: up to so many are
-- counted, by the index of lanes, and only of tenants with a quota. A row that somebody has locked is
-- left for the next time. What was noted counts for a minute, and is noted again in the last half of it.
WITH RECURSIVE bounded AS MATERIALIZED (
    SELECT tenant_id, max_waiting FROM tenure.tenant WHERE max_waiting IS NOT NULL),
queue AS (
    (SELECT queue FROM tenure.job WHERE EXISTS (SELECT FROM bounded) ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.queue
    FROM queue CROSS JOIN LATERAL (
        SELECT j.queue FROM tenure.job j WHERE j.queue > queue.queue ORDER BY j.queue LIMIT 1) AS next),
counted AS MATERIALIZED (
    SELECT b.tenant_id, b.max_waiting <= (
        SELECT count(*) FROM (
            SELECT FROM queue CROSS JOIN LATERAL (
                SELECT FROM tenure.job j WHERE j.queue = queue.queue AND j.tenant_id = b.tenant_id LIMIT b.max_waiting) one
            LIMIT b.max_waiting) counted) AS over
    FROM bounded b),
changed AS MATERIALIZED (
    SELECT t.tenant_id, c.over FROM counted c JOIN tenure.tenant t ON t.tenant_id = c.tenant_id
    WHERE CASE WHEN c.over THEN t.over_quota_at IS NULL OR t.over_quota_at < clock_timestamp() - interval '30 s' ELSE t.over_quota_at IS NOT NULL END
    FOR UPDATE OF t SKIP LOCKED)
UPDATE tenure.tenant t SET over_quota_at = CASE WHEN changed.over THEN clock_timestamp() END FROM changed WHERE t.tenant_id = changed.tenant_id;
