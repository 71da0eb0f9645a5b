-- What runs say of themselves, and where and for how long finished jobs ran. A new table, and
-- columns without a default on tenure.completed_job, which rewrites nothing and waits for running
-- transactions on it for a moment. Programs of before go on working: they finish jobs as before, of
-- which it is not known then where they ran.

-- +goose Up

-- A run's progress, output and log lines, one row for each run that has any. lines are
-- {"ms": since started_at, "text": …}, the oldest first; left_out counts those before them.
CREATE TABLE tenure.job_report (
    job_id     bigint      NOT NULL,
    turn       integer     NOT NULL,
    attempt    smallint    NOT NULL,
    node       text        NOT NULL,
    started_at timestamptz NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done       bigint      NOT NULL DEFAULT 0,
    total      bigint      NOT NULL DEFAULT 0,
    note       text        NOT NULL DEFAULT '',
    output     jsonb,
    lines      jsonb       NOT NULL DEFAULT '[]',
    left_out   integer     NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, turn)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX job_report_written ON tenure.job_report USING brin (written_at);

ALTER TABLE tenure.completed_job
    ADD COLUMN started_at timestamptz, -- null: it did not run, or that is not known
    ADD COLUMN node       text;        -- likewise

-- Writes the reports of runs on a node whose jobs are theirs: the caller has seen to that. It may
-- be done again, and of a job the last ten runs are kept.
-- +goose StatementBegin
CREATE FUNCTION tenure.write_reports(reports jsonb, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    kept CONSTANT integer := 10;
BEGIN
    INSERT INTO tenure.job_report AS r (job_id, turn, attempt, node, started_at, done, total, note, output, lines, left_out)
    SELECT s.job_id, s.turn, s.attempt, write_reports.node, clock_timestamp() - s.age_us * interval '1 microsecond',
        s.done, s.total, s.note, s.output, s.lines, s.left_out
    FROM jsonb_to_recordset(reports) AS s (job_id bigint, turn integer, attempt smallint, age_us bigint,
        done bigint, total bigint, note text, output jsonb, lines jsonb, left_out integer)
    ORDER BY s.job_id
    ON CONFLICT (job_id, turn) DO UPDATE SET written_at = excluded.written_at,
        done = excluded.done, total = excluded.total, note = excluded.note,
        output = excluded.output, lines = excluded.lines, left_out = excluded.left_out;
    DELETE FROM tenure.job_report r
    USING jsonb_to_recordset(reports) AS s (job_id bigint)
    WHERE r.job_id = s.job_id AND r.turn < (
        SELECT k.turn FROM tenure.job_report k WHERE k.job_id = s.job_id
        ORDER BY k.turn DESC OFFSET kept - 1 LIMIT 1);
END
$$;
-- +goose StatementEnd

-- As write_reports in a handler's transaction, which must not fail by it nor wait for long: what cannot
-- be written is left out, and the server's log says why.
-- +goose StatementBegin
CREATE FUNCTION tenure.write_reports_in_tx(reports text, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    PERFORM tenure.write_reports(reports::jsonb, node);
EXCEPTION WHEN OTHERS THEN -- but not a cancellation
    RAISE LOG 'what runs of jobs said could not be written: %', SQLERRM;
END
$$;
-- +goose StatementEnd

-- As in 0009, and notes that the run took so long, in µs, and on which node.
-- +goose StatementBegin
CREATE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone record;
BEGIN
    DELETE FROM tenure.job j WHERE j.id = job_id AND j.turn = job_turn
    RETURNING j.created_at, j.priority, j.attempt, j.losses, j.tenant_id, j.queue, j.kind, j.payload, j.meta, j.unique_key, j.correlation_id,
        clock_timestamp() AS ended_at
    INTO gone;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
    IF keep THEN
        INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
            tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
        VALUES (job_id, gone.created_at, gone.ended_at, job_turn, gone.priority, gone.attempt + 1, gone.losses,
            gone.tenant_id, gone.queue, gone.kind, 'done', gone.payload, gone.meta, gone.unique_key, gone.correlation_id,
            gone.ended_at - took_us * interval '1 microsecond', finish_in_tx.node);
    END IF;
    IF gone.unique_key IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = finish_in_tx.job_id;
    END IF;
END
$$;
-- +goose StatementEnd

-- As in 0013, and notes that the run took so long, in µs, and on which node.
-- +goose StatementBegin
CREATE FUNCTION tenure.finish_batch_in_tx(job_ids bigint[], job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ended    record;
    ended_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    WITH gone AS (
        DELETE FROM tenure.job j WHERE j.id = ANY (job_ids) AND j.turn = job_turn
        RETURNING j.id, j.created_at, j.priority, j.attempt, j.losses, j.tenant_id, j.queue, j.kind, j.payload, j.meta, j.unique_key, j.correlation_id),
    kept AS (
        INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
            tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
        SELECT id, created_at, ended_at, job_turn, priority, attempt + 1, losses,
            tenant_id, queue, kind, 'done', payload, meta, unique_key, correlation_id,
            ended_at - took_us * interval '1 microsecond', finish_batch_in_tx.node
        FROM gone WHERE keep)
    SELECT count(*) AS jobs, min(tenant_id) AS tenant, array_agg(unique_key) FILTER (WHERE unique_key IS NOT NULL) AS keys
    INTO ended FROM gone;
    IF ended.jobs < cardinality(job_ids) THEN
        RAISE EXCEPTION 'the claim on % of these % jobs was lost', cardinality(job_ids) - ended.jobs, cardinality(job_ids)
            USING ERRCODE = 'TN001';
    END IF;
    IF ended.keys IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = ended.tenant AND u.key = ANY (ended.keys) AND u.job_id = ANY (job_ids);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION tenure.finish_batch_in_tx(bigint[], integer, boolean, bigint, text);
DROP FUNCTION tenure.finish_in_tx(bigint, integer, boolean, bigint, text);
DROP FUNCTION tenure.write_reports_in_tx(text, text);
DROP FUNCTION tenure.write_reports(jsonb, text);
ALTER TABLE tenure.completed_job DROP COLUMN started_at, DROP COLUMN node;
DROP TABLE tenure.job_report;
