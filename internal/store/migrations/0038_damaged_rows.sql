-- What is done with a job whose payload or meta cannot be read any more, as storage has lost or changed
-- some of it: it is listed, cancelled and taken out of everybody's way without that. And bounds of the times
-- in the tables, as tenure.enqueue has them: no clock and no list can do with 'infinity'.
-- Programs of before go on working. It holds the locks of the tables with these times for a moment.

-- +goose Up
-- What is wrong with a value; null: nothing, it can be read. printed: and be printed.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.damage(value jsonb, printed boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF printed THEN
        PERFORM value::text;
    ELSE
        PERFORM value #> '{}';
    END IF;
    RETURN NULL;
EXCEPTION WHEN internal_error OR data_corrupted OR index_corrupted OR program_limit_exceeded THEN
    RETURN SQLERRM;
END
$$;
-- +goose StatementEnd
-- The value, or, if it cannot be read, what is wrong with it.
CREATE OR REPLACE FUNCTION tenure.legible(value jsonb, printed boolean DEFAULT false) RETURNS jsonb
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN damage IS NULL THEN value ELSE jsonb_build_object('tenure:damaged', damage) END
    FROM tenure.damage(value, printed)
$$;
-- As in 0035, without what cannot be read.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- No row that is there is looked at by the constraints, but each that is written, also if something else of it is
-- changed. So those that break them, which somebody has set by hand, get the nearest time that does not.
UPDATE tenure.timer_job SET due_at = least(greatest(due_at, '1970-01-01 00:00+00'), '9999-12-31 00:00+00')
WHERE due_at < '1970-01-01 00:00+00' OR due_at > '9999-12-31 00:00+00';
UPDATE tenure.suspended_job SET due_at = least(greatest(due_at, '1970-01-01 00:00+00'), '9999-12-31 00:00+00'), resume_at = least(greatest(resume_at, '1970-01-01 00:00+00'), '9999-12-31 00:00+00')
WHERE due_at < '1970-01-01 00:00+00' OR due_at > '9999-12-31 00:00+00' OR resume_at < '1970-01-01 00:00+00' OR resume_at > '9999-12-31 00:00+00';
UPDATE tenure.external_job SET due_at = least(greatest(due_at, '1970-01-01 00:00+00'), '9999-12-31 00:00+00')
WHERE due_at < '1970-01-01 00:00+00' OR due_at > '9999-12-31 00:00+00';
ALTER TABLE tenure.timer_job ADD CONSTRAINT timer_job_time CHECK (due_at >= '1969-12-31 00:00+00' AND due_at <= '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.suspended_job ADD CONSTRAINT suspended_job_time CHECK (due_at >= '1969-12-31 00:00+00' AND due_at <= '10000-01-02 00:00+00' AND resume_at >= '1969-12-31 00:00+00' AND resume_at <= '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.external_job ADD CONSTRAINT external_job_time CHECK (due_at >= '1969-12-31 00:00+00' AND due_at <= '10000-01-02 00:00+00') NOT VALID;

-- +goose Down
ALTER TABLE tenure.external_job DROP CONSTRAINT external_job_time;
ALTER TABLE tenure.suspended_job DROP CONSTRAINT suspended_job_time;
ALTER TABLE tenure.timer_job DROP CONSTRAINT timer_job_time;
-- The functions stay: tenure.cancel_as goes on with them. 0035 drops that one.
