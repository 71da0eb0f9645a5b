-- Makes the running transaction a tenant's: as enter_tenant, but for tenants that live elsewhere by
-- now, or whose data is being copied; then the other pool is in the error's DETAIL. What
-- it reads is committed, whatever the transaction's isolation: nobody who began after a
-- tenant was held or closed gets in, and the mover waits for all who began before. A tenant whose
-- role is the user that nodes connect as has no transactions: they would see all tenants' jobs.
--
-- The statements are qualified throughout, as the path is the connection's. search_path is set last:
-- whatever came after it would be planned again for each tenant. Assignments, as PERFORM would cost
-- more than what it calls. No SET search_path on this function: leaving it would undo its own work.
CREATE OR REPLACE FUNCTION tenure.begin_tenant(schema_name text, role_name text, tenant_id text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    place pg_catalog.record;
    done  pg_catalog.text;
BEGIN
    SELECT t.state, t.other_pool INTO place FROM tenure.tenant t
    WHERE t.tenant_id OPERATOR(pg_catalog.=) begin_tenant.tenant_id
      AND (t.state OPERATOR(pg_catalog.=) 'moved' OR t.state OPERATOR(pg_catalog.=) 'moving' AND t.held);
    IF FOUND THEN
        IF place.state OPERATOR(pg_catalog.=) 'moved' THEN
            RAISE EXCEPTION 'tenant % has moved to pool %', tenant_id, place.other_pool
                USING ERRCODE = 'TN003', DETAIL = place.other_pool;
        END IF;
        RAISE EXCEPTION 'tenant % is held while its data is copied to pool %', tenant_id, place.other_pool
            USING ERRCODE = 'TN004', DETAIL = place.other_pool;
    END IF;
    IF pg_catalog.to_regnamespace(pg_catalog.quote_ident(schema_name)) IS NULL THEN
        RAISE EXCEPTION 'tenant % has no schema % in database %', tenant_id, schema_name, pg_catalog.current_database()
            USING ERRCODE = 'TN002', HINT = 'Create the schema, or correct where the tenant is routed to.';
    END IF;
    IF role_name OPERATOR(pg_catalog.=) SESSION_USER::pg_catalog.text THEN
        RAISE EXCEPTION 'role % of tenant % is the user that nodes connect as, which has all tenants'' jobs: give the tenant another role, or have nodes connect as another user', role_name, tenant_id
            USING ERRCODE = 'TN008';
    END IF;
    done := pg_catalog.set_config('role', CASE WHEN role_name OPERATOR(pg_catalog.=) '' THEN 'none' ELSE role_name END, true);
    IF NOT pg_catalog.has_schema_privilege(schema_name, 'USAGE') THEN
        RAISE EXCEPTION 'role % may not use schema % of tenant %', CURRENT_USER, schema_name, tenant_id
            USING ERRCODE = 'TN002', HINT = 'GRANT USAGE ON SCHEMA to that role.';
    END IF;
    done := pg_catalog.set_config('app.tenant_id', tenant_id, true);
    done := pg_catalog.set_config('search_path', pg_catalog.quote_ident(schema_name) OPERATOR(pg_catalog.||) ', pg_temp', true);
END
$$;
