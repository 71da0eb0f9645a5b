-- Whether a caller may do to a tenant's jobs what takes this privilege on tenure.job, or, for ENQUEUE, the one
-- to insert into its column tenant_id: for every tenant, or for none in particular (null), who has it; else
-- for those whose role he is, or has the rights of. looks: he only looks, and may use all of his
-- rights. It is executed with the rights of the ledger's owner, as tenants' roles may not read which
-- roles there are.
CREATE OR REPLACE FUNCTION tenure.job_allowed(caller text, tenant text, privilege text, looks boolean) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (CASE privilege WHEN 'ENQUEUE' THEN has_column_privilege(caller, 'tenure.job'::regclass, 'tenant_id', 'INSERT')
                       ELSE has_table_privilege(caller, 'tenure.job'::regclass, privilege) END)
       AND (looks OR tenure.calls_itself(caller)) THEN
        RETURN true;
    END IF;
    RETURN EXISTS (
        SELECT FROM pg_roles r
        WHERE r.rolname = coalesce((SELECT t.role_name FROM tenure.tenant_role t WHERE t.tenant_id = tenant),
                                   (SELECT replace(t.role_name, '{tenant}', tenant) FROM tenure.tenant_role t WHERE t.tenant_id = ''))
          AND (r.rolname = caller OR pg_has_role(caller, r.oid, 'USAGE') AND (looks OR tenure.calls_itself(caller))));
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.job_allowed FROM PUBLIC;
