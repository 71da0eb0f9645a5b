-- The tenant whose role this is, '' for all of them; null: no tenant's. By the pattern of roles it is one if
-- the ledger knows the tenant, or if it is there and cannot log in: nodes and clients can.
CREATE OR REPLACE FUNCTION tenure.tenant_of_role(name text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE queue AS (
        (SELECT j.queue FROM tenure.job j ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT next.queue FROM queue CROSS JOIN LATERAL (
            SELECT j.queue FROM tenure.job j WHERE j.queue > queue.queue ORDER BY j.queue LIMIT 1) next),
    pattern AS (
        SELECT split_part(r.role_name, '{tenant}', 1) AS before, split_part(r.role_name, '{tenant}', 2) AS behind
        FROM tenure.tenant_role r WHERE r.tenant_id = '' AND strpos(r.role_name, '{tenant}') > 0),
    fits AS (
        SELECT substr(name, length(before) + 1, length(name) - length(before) - length(behind)) AS tenant
        FROM pattern
        WHERE length(name) > length(before) + length(behind) AND left(name, length(before)) = before AND right(name, length(behind)) = behind)
    SELECT coalesce(
        (SELECT min(r.tenant_id) FROM tenure.tenant_role r WHERE r.role_name = name),
        (SELECT f.tenant FROM fits f
         WHERE NOT EXISTS (SELECT FROM tenure.tenant_role r WHERE r.tenant_id = f.tenant) -- which has another one
           AND (EXISTS (SELECT FROM pg_roles WHERE rolname = name AND NOT rolcanlogin)
                OR EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = f.tenant)
                OR EXISTS (SELECT FROM tenure.timer_job j WHERE j.tenant_id = f.tenant)
                OR EXISTS (SELECT FROM queue CROSS JOIN LATERAL (
                       SELECT FROM tenure.job j WHERE j.queue = queue.queue AND j.tenant_id = f.tenant LIMIT 1) j))))
$$;
