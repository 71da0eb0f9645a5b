-- Raises a refusal, for callers who do not look at the column.
CREATE OR REPLACE FUNCTION tenure.enqueue_raise(caller text, tenant text, refused text, other_pool text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    CASE refused
    WHEN 'wrong pool' THEN
        RAISE EXCEPTION 'the ledger in database % has no number yet', current_database()
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run: tenure migrate';
    WHEN 'forbidden' THEN
        RAISE EXCEPTION 'role % may not enqueue for tenant %', caller, tenant
            USING ERRCODE = 'insufficient_privilege',
                  HINT = CASE WHEN tenure.calls_itself(caller)
                      THEN format('For a user who enqueues for all tenants, as a web server does, execute as the ledger''s owner: GRANT INSERT (tenant_id) ON tenure.job TO %I. ', caller) ||
                           'A tenant''s own role stands in tenure.tenant_role, which tenure migrate --grants fills from tenants.static and the pattern tenants.role. '
                           'For one that only tenants.table names, execute as the ledger''s owner or a node''s user: INSERT INTO tenure.tenant_role VALUES (tenant, role).'
                      ELSE 'Make the trigger''s function SECURITY DEFINER, with SET search_path = pg_catalog, pg_temp, and the tenant''s role its owner. '
                           'What a statement does not call itself, such as a trigger or a view, enqueues for the tenant whose role executes it only. '
                           'A function for several tenants needs another owner, who may enqueue for them. '
                           'In a statement that makes the call itself, write it before dollar quotes, comments within comments, and literals with a backslash.' END;
    WHEN 'moved' THEN
        RAISE EXCEPTION 'tenant % has moved to pool %', tenant, other_pool USING ERRCODE = 'TN003', DETAIL = other_pool;
    WHEN 'held' THEN
        RAISE EXCEPTION 'tenant % is held while its data is copied to pool %', tenant, other_pool USING ERRCODE = 'TN004', DETAIL = other_pool;
    WHEN 'arriving' THEN
        RAISE EXCEPTION 'tenant % is being moved into this pool', tenant
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again when it has arrived.';
    WHEN 'quota' THEN
        RAISE EXCEPTION 'tenant % has % jobs waiting, as many as it may', tenant, other_pool
            USING ERRCODE = 'TN006', HINT = format('Try again when some have run, or raise the quota: tenure tenants limit %s --max-waiting N', tenant);
    ELSE
        RAISE EXCEPTION 'the unique key was taken by a transaction that cannot be seen yet'
            USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
    END CASE;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_raise FROM PUBLIC;
