-- Finishes a job within its handler's transaction, or ends that transaction with TN001 when
-- the claim was lost. The pool's user calls it, in a session whose settings are for tenants'
-- statements: so it brings those that job SQL has, for a plan that was made while a table was
-- small is kept when it has become large. keep says whether the finished job can be looked at.
CREATE OR REPLACE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone record;
BEGIN
    DELETE FROM tenure.job j WHERE j.id = job_id AND j.turn = job_turn
    RETURNING j.created_at, j.priority, j.attempt, j.losses, j.tenant_id, j.queue, j.kind, j.payload, j.meta, j.unique_key, j.correlation_id
    INTO gone;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
    IF keep THEN
        INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
            tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
        VALUES (job_id, gone.created_at, clock_timestamp(), job_turn, gone.priority, gone.attempt + 1, gone.losses,
            gone.tenant_id, gone.queue, gone.kind, 'done', gone.payload, gone.meta, gone.unique_key, gone.correlation_id);
    END IF;
    IF gone.unique_key IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = finish_in_tx.job_id;
    END IF;
END
$$;

-- As before, and notes that the run took so long, in µs, and on which node, and ends that are awaited.
CREATE OR REPLACE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
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
    PERFORM tenure.note_ends(ARRAY[job_id], 'done');
END
$$;
