-- Why a job of a tenant is not taken in from a caller; null when it is. pool and with_data as for
-- tenure.enqueue. keyed: it has a unique key.
CREATE OR REPLACE FUNCTION tenure.enqueue_refusal(caller text, tenant text, keyed boolean, pool integer, with_data boolean,
        OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql AS $$
DECLARE
    place record;
BEGIN
    SELECT p.number, t.state, t.other_pool, t.held, t.max_waiting, t.over_quota_at INTO place
    FROM tenure.pool p LEFT JOIN tenure.tenant t ON t.tenant_id = tenant;
    refused := CASE
        WHEN place.number IS NULL OR pool <> place.number THEN 'wrong pool'
        WHEN NOT tenure.job_allowed(caller, tenant, 'ENQUEUE', false) THEN 'forbidden'
        WHEN place.state = 'moved' THEN 'moved'
        WHEN place.state = 'moving' AND place.held AND with_data THEN 'held'
        WHEN place.state = 'arriving' AND keyed THEN 'arriving' -- not all its keys are here yet
        WHEN place.over_quota_at > clock_timestamp() - interval '1 minute' AND place.max_waiting IS NOT NULL THEN 'quota'
    END;
    IF refused IN ('moved', 'held') THEN
        other_pool := place.other_pool;
    ELSIF refused = 'quota' THEN
        other_pool := place.max_waiting; -- there is no column of its own for it
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_refusal FROM PUBLIC;
