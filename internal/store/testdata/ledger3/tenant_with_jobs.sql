-- Tenants with unfinished jobs, those of $2 or, with null, any; at most $1 jobs of each
-- table, by loose index scans where an index begins with what is asked for.
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
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.history_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) history
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.suspended_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) suspended
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.dead_letter_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) dead
ORDER BY tenant_id;
