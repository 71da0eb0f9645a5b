-- What tenure.cancel does for a caller. It takes no lock that others wait for: a job that waits or
-- runs gets a request, for the holder, who ends it when its turn comes, or for its node; one that
-- nobody may claim ends here. One that an external worker has locked ends, too, and its worker finds
-- that out.
CREATE OR REPLACE FUNCTION tenure.cancel_as(caller text, id bigint, keep boolean) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    gone tenure.completed_job;
BEGIN
    FOR look IN 1..3 LOOP -- it may move while it is looked for
        SELECT j.tenant_id INTO gone.tenant_id FROM (
            SELECT w.tenant_id FROM tenure.job w WHERE w.id = cancel_as.id
            UNION ALL SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = cancel_as.id
            UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = cancel_as.id
            UNION ALL SELECT s.tenant_id FROM tenure.suspended_job s WHERE s.id = cancel_as.id
            UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = cancel_as.id) j;
        IF NOT tenure.job_changeable(caller, gone.tenant_id, 'DELETE') THEN
            RETURN NULL;
        END IF;
        WITH t AS (DELETE FROM tenure.timer_job j WHERE j.id = cancel_as.id RETURNING *),
        x AS (DELETE FROM tenure.external_job j WHERE j.id = cancel_as.id RETURNING *),
        s AS (DELETE FROM tenure.suspended_job j WHERE j.id = cancel_as.id RETURNING *),
        d AS (DELETE FROM tenure.dead_letter_job j WHERE j.id = cancel_as.id RETURNING *),
        ended AS (
            SELECT t.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM t
            UNION ALL
            SELECT x.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM x
            UNION ALL
            SELECT s.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM s
            UNION ALL
            SELECT d.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM d),
        keys AS MATERIALIZED (SELECT ended.id, tenant_id, unique_key FROM ended), -- whole rows are copied for USING
        freed AS (
            DELETE FROM tenure.unique_job u USING keys e
            WHERE u.tenant_id = e.tenant_id AND u.key = e.unique_key AND u.job_id = e.id),
        heard AS (
            DELETE FROM tenure.cancel_request r USING keys e WHERE r.job_id = e.id),
        kept AS (
            INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
                tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
            SELECT e.id, created_at, now(), turn, priority, attempt, losses,
                tenant_id, queue, kind, 'cancelled', tenure.legible(payload), tenure.legible(meta), unique_key, correlation_id
            FROM ended e WHERE keep)
        SELECT e.id INTO gone.id FROM ended e;
        IF gone.id IS NOT NULL THEN
            PERFORM tenure.note_ends(ARRAY[gone.id], 'cancelled');
            RETURN 'cancelled';
        END IF;
        INSERT INTO tenure.cancel_request (job_id) SELECT j.id FROM tenure.job j WHERE j.id = cancel_as.id
        ON CONFLICT DO NOTHING;
        IF EXISTS (SELECT FROM tenure.job j WHERE j.id = cancel_as.id) THEN
            RETURN 'cancelling';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.cancel_as FROM PUBLIC;
