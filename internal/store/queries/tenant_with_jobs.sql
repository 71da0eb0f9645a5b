-- Tenants with unfinished jobs or schedules, those of $2 or, with null, any; at most $1 of each
-- table, by loose index scans where an index begins with what is asked for. Schedules that tenants
-- have because all have them, or by the configuration, count for those of $2 only.
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.tenant_id FROM tenure.job j ORDER BY j.queue, j.tenant_id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id FROM tenure.job j
        WHERE (j.queue, j.tenant_id) > (lane.queue, lane.tenant_id)
        ORDER BY j.queue, j.tenant_id LIMIT 1) next)
SELECT tenant_id FROM (SELECT tenant_id FROM lane WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) waiting
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.timer_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) timers
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.external_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) external
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.suspended_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) suspended
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.dead_letter_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) dead
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.schedule WHERE tenant_id <> '' AND (tenant_id IN (SELECT unnest($2::text[])) OR $2::text[] IS NULL AND origin = 'set') LIMIT $1) schedules
ORDER BY tenant_id;
