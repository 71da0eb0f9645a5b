-- Whether a caller may change a job of a tenant now: whether it is his, and, as an error, whether
-- it is between two pools, when the other one may have it, too.
CREATE OR REPLACE FUNCTION tenure.job_changeable(caller text, tenant text, privilege text) RETURNS boolean
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF tenant IS NULL OR NOT tenure.job_allowed(caller, tenant, privilege, false) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = tenant AND t.state IN ('moved', 'arriving')) THEN
        RAISE EXCEPTION 'tenant % is between two pools', tenant
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again when it has arrived.';
    END IF;
    RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.job_changeable FROM PUBLIC;
