-- Sets a limit in the place of what was set before, or lifts it. No row: the tenant is being moved, or has
-- moved, or there is nothing to lift.
-- A tenant's own number of jobs in flight stands with the tenant, where earlier programs look for it.
-- $1 tenant, or empty, $2 scope, $3 name, $4 the most in flight, $5 rate, $6 its period in ms,
-- $7 burst; null: none.
WITH allowed AS (
    SELECT WHERE NOT EXISTS (SELECT FROM tenure.tenant WHERE tenant_id = $1::text AND state <> 'active')),
tenants AS (
    INSERT INTO tenure.tenant AS t (tenant_id, max_running) SELECT $1, $4::integer FROM allowed WHERE $2::text = 'tenant' AND $1 <> '' AND $4 IS NOT NULL
    ON CONFLICT (tenant_id) DO UPDATE SET max_running = excluded.max_running),
lifted AS (
    UPDATE tenure.tenant t SET max_running = NULL FROM allowed WHERE t.tenant_id = $1 AND $2 = 'tenant' AND $4 IS NULL AND t.max_running IS NOT NULL
    RETURNING 1),
new AS (
    SELECT CASE WHEN $2 = 'tenant' AND $1 <> '' THEN NULL ELSE $4 END AS most FROM allowed),
gone AS (
    DELETE FROM tenure.job_limit l USING new
    WHERE l.tenant_id = $1 AND l.scope = $2 AND l.name = $3::text AND new.most IS NULL AND $5::integer IS NULL
    RETURNING 1),
there AS (
    INSERT INTO tenure.job_limit (tenant_id, scope, name, max_running, rate, per_ms, burst)
    SELECT $1, $2, $3, new.most, $5, $6::bigint, $7::integer FROM new WHERE new.most IS NOT NULL OR $5 IS NOT NULL
    ON CONFLICT (tenant_id, scope, name) DO UPDATE
    SET max_running = excluded.max_running, rate = excluded.rate, per_ms = excluded.per_ms, burst = excluded.burst)
SELECT true FROM allowed WHERE $4 IS NOT NULL OR $5 IS NOT NULL OR EXISTS (SELECT FROM lifted) OR EXISTS (SELECT FROM gone);
