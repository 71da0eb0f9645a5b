-- Makes the running transaction a tenant's: its schema is searched first and
-- pg_temp last, its role is taken (none when empty) and app.tenant_id is set, all
-- until the transaction ends. A schema that is missing or closed to the role is an
-- error: Postgres would silently search on. No SET search_path on this function:
-- leaving it would undo its own work.
CREATE OR REPLACE FUNCTION tenure.enter_tenant(schema_name text, role_name text, tenant_id text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.to_regnamespace(pg_catalog.quote_ident(schema_name)) IS NULL THEN
        RAISE EXCEPTION 'tenant % has no schema % in database %', tenant_id, schema_name, pg_catalog.current_database()
            USING ERRCODE = 'TN002', HINT = 'Create the schema, or correct where the tenant is routed to.';
    END IF;
    PERFORM pg_catalog.set_config('role', CASE WHEN role_name OPERATOR(pg_catalog.=) '' THEN 'none' ELSE role_name END, true);
    IF NOT pg_catalog.has_schema_privilege(schema_name, 'USAGE') THEN
        RAISE EXCEPTION 'role % may not use schema % of tenant %', CURRENT_USER, schema_name, tenant_id
            USING ERRCODE = 'TN002', HINT = 'GRANT USAGE ON SCHEMA to that role.';
    END IF;
    PERFORM pg_catalog.set_config('search_path', pg_catalog.quote_ident(schema_name) OPERATOR(pg_catalog.||) ', pg_temp', true);
    PERFORM pg_catalog.set_config('app.tenant_id', tenant_id, true);
END
$$;
