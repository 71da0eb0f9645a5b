-- How many more of a tenant's jobs of a topic external workers may lock by the limits on how many run:
-- the tenant's own or every tenant's, and those of the kind. Null: none bounds them.
CREATE OR REPLACE FUNCTION tenure.external_room(tenant text, topic text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    WITH bound AS (
        SELECT coalesce((SELECT greatest(t.max_running, 1) FROM tenure.tenant t WHERE t.tenant_id = tenant AND t.max_running IS NOT NULL),
                        (SELECT l.max_running FROM tenure.job_limit l WHERE l.tenant_id = '' AND l.scope = 'tenant' AND l.name = '')) AS jobs,
               (SELECT l.max_running FROM tenure.job_limit l
                WHERE l.tenant_id IN (tenant, '') AND l.scope = 'kind' AND l.name = topic AND l.max_running IS NOT NULL
                ORDER BY l.tenant_id DESC LIMIT 1) AS of_kind)
    SELECT least(CASE WHEN jobs IS NOT NULL THEN jobs - (
                     SELECT pg_catalog.count(*) FROM tenure.external_job j WHERE j.tenant_id = tenant AND j.lock_expires_at IS NOT NULL) END,
                 CASE WHEN of_kind IS NOT NULL THEN of_kind - (
                     SELECT pg_catalog.count(*) FROM tenure.external_job j WHERE j.tenant_id = tenant AND j.kind = topic AND j.lock_expires_at IS NOT NULL) END)
    FROM bound
$$;
