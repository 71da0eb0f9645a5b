-- Whose jobs a caller may see: those of all tenants but some, or of some alone. Who has the privilege to SELECT from
-- tenure.job sees all; others those of the tenants whose role they are, or have the rights of.
CREATE OR REPLACE FUNCTION tenure.seen_by(caller text, key uuid, OUT every boolean, OUT tenants text[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pattern CONSTANT text := (SELECT t.role_name FROM tenure.tenant_role t WHERE t.tenant_id = '');
    before  CONSTANT text := split_part(pattern, '{tenant}', 1);
    behind  CONSTANT text := split_part(pattern, '{tenant}', 2);
BEGIN
    IF NOT EXISTS (SELECT FROM tenure.view_key k WHERE k.key = seen_by.key) THEN
        RAISE EXCEPTION 'tenure.seen_by is called by tenure.job_status alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    every := has_table_privilege(caller, 'tenure.job'::regclass, 'SELECT');
    IF every THEN
        tenants := '{}';
        RETURN;
    END IF;
    -- A pattern that is one role for all: those are seen that have no other one.
    every := strpos(coalesce(pattern, '{tenant}'), '{tenant}') = 0 AND EXISTS (SELECT FROM pg_roles r WHERE r.rolname = pattern AND pg_has_role(caller, r.oid, 'USAGE'));
    SELECT coalesce(array_agg(f.tenant_id), '{}') INTO tenants FROM (
        SELECT t.tenant_id FROM tenure.tenant_role t LEFT JOIN pg_roles r ON r.rolname = t.role_name
        WHERE t.tenant_id <> '' AND coalesce(pg_has_role(caller, r.oid, 'USAGE'), false) <> every
        UNION ALL
        SELECT named.tenant_id
        FROM pg_roles r CROSS JOIN LATERAL (
            SELECT substr(r.rolname, length(before) + 1, length(r.rolname) - length(before) - length(behind)) AS tenant_id) named
        WHERE strpos(pattern, '{tenant}') > 0 AND replace(pattern, '{tenant}', named.tenant_id) = r.rolname AND pg_has_role(caller, r.oid, 'USAGE')
          AND NOT EXISTS (SELECT FROM tenure.tenant_role t WHERE t.tenant_id = named.tenant_id)) f;
END
$$;
