-- The tenants whose recorded role is contradicted by a configuration; $4: their rows are
-- removed, too. $1 tenants, '' for the pattern, and in the same order $2 their roles, '' for
-- none; $3 whether no other tenant has a role, as far as the configuration knows.
WITH stale AS (
    SELECT r.tenant_id, r.role_name FROM tenure.tenant_role r
    LEFT JOIN unnest($1::text[], $2::text[]) AS w (tenant_id, role_name) ON w.tenant_id = r.tenant_id
    WHERE r.role_name <> coalesce(w.role_name, CASE WHEN $3::boolean THEN '' ELSE r.role_name END)),
gone AS (
    DELETE FROM tenure.tenant_role r USING stale
    WHERE $4::boolean AND r.tenant_id = stale.tenant_id AND r.role_name = stale.role_name)
SELECT tenant_id FROM stale ORDER BY tenant_id;
