-- The part of tenure.retry that is about jobs for external workers: one that is dead, or was put off,
-- waits now.
CREATE OR REPLACE FUNCTION tenure.retry_external(id bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    moved bigint;
BEGIN
    WITH risen AS (DELETE FROM tenure.dead_letter_job d WHERE d.id = retry_external.id AND d.origin = 'external_job' RETURNING *),
    keyed AS (
        INSERT INTO tenure.unique_job (tenant_id, key, job_id)
        SELECT tenant_id, unique_key, risen.id FROM risen WHERE unique_key IS NOT NULL),
    hurried AS (
        UPDATE tenure.external_job x SET due_at = NULL, turn = turn + 1, ready_at = clock_timestamp(), position = nextval('tenure.job_position')
        WHERE x.id = retry_external.id AND x.due_at IS NOT NULL
        RETURNING x.id),
    waits AS (
        INSERT INTO tenure.external_job ({{job}}, due_at)
        SELECT {{risen.job | turn = risen.turn + 1 | attempt = 0 | losses = 0}}, NULL FROM risen
        RETURNING external_job.id)
    SELECT w.id INTO moved FROM (SELECT waits.id FROM waits UNION ALL SELECT hurried.id FROM hurried) w;
    RETURN moved IS NOT NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.retry_external FROM PUBLIC;
