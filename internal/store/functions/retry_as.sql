-- What tenure.retry does for a caller.
CREATE OR REPLACE FUNCTION tenure.retry_as(caller text, id bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    tenant text;
    queue text;
    priority smallint;
BEGIN
    SELECT j.tenant_id INTO tenant FROM (
        SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = retry_as.id
        UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = retry_as.id AND x.due_at IS NOT NULL
        UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = retry_as.id) j;
    IF NOT tenure.job_changeable(caller, tenant, 'INSERT') THEN
        RETURN false;
    END IF;
    IF tenure.retry_external(retry_as.id) THEN
        RETURN true; -- its workers look by themselves
    END IF;
    WITH risen AS (DELETE FROM tenure.dead_letter_job d WHERE d.id = retry_as.id RETURNING *),
    hurried AS (DELETE FROM tenure.timer_job t WHERE t.id = retry_as.id RETURNING *),
    keyed AS (
        INSERT INTO tenure.unique_job (tenant_id, key, job_id)
        SELECT tenant_id, unique_key, risen.id FROM risen WHERE unique_key IS NOT NULL),
    unasked AS (
        DELETE FROM tenure.cancel_request r WHERE r.job_id = retry_as.id)
    INSERT INTO tenure.job ({{job}})
    SELECT {{risen.job | turn = risen.turn + 1 | attempt = 0 | losses = 0}} FROM risen
    UNION ALL
    SELECT {{hurried.job | turn = hurried.turn + 1}} FROM hurried
    RETURNING job.queue, job.priority INTO queue, priority;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tenure.notify_holder(tenant, queue, priority, NULL);
    RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.retry_as FROM PUBLIC;
