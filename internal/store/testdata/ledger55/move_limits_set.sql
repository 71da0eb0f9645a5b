-- Gives a tenant that arrives what was set for it where it comes from, and nothing else; no row:
-- another mover goes on with it. $1 tenant, $2 the mover, $3 max_running or null, $4 weight, $5 max_waiting or
-- null, $6 its limits and $7 its buckets, as JSON.
WITH mine AS (
    UPDATE tenure.tenant SET max_running = $3, weight = $4, max_waiting = $5, over_quota_at = NULL
    WHERE tenant_id = $1 AND state = 'arriving' AND mover = $2
    RETURNING tenant_id),
new AS MATERIALIZED (
    SELECT r.scope, r.name, r.max_running, r.rate, r.per_ms, r.burst
    FROM mine, jsonb_populate_recordset(NULL::tenure.job_limit, $6::text::jsonb) AS r),
gone AS (
    DELETE FROM tenure.job_limit l USING mine
    WHERE l.tenant_id = mine.tenant_id AND (l.scope, l.name) NOT IN (SELECT scope, name FROM new)),
added AS (
    INSERT INTO tenure.job_limit (tenant_id, scope, name, max_running, rate, per_ms, burst)
    SELECT mine.tenant_id, new.scope, new.name, new.max_running, new.rate, new.per_ms, new.burst FROM mine, new
    ON CONFLICT (tenant_id, scope, name) DO UPDATE
    SET max_running = excluded.max_running, rate = excluded.rate, per_ms = excluded.per_ms, burst = excluded.burst),
used AS (
    INSERT INTO tenure.rate_bucket (tenant_id, scope, name, full_at)
    SELECT mine.tenant_id, b.scope, b.name, clock_timestamp() + b.full_in * interval '1 second'
    FROM mine, jsonb_to_recordset($7::text::jsonb) AS b (scope text, name text, full_in double precision)
    ON CONFLICT (tenant_id, scope, name) DO UPDATE SET full_at = excluded.full_at)
SELECT tenant_id FROM mine;
