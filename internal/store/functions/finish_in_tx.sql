-- Finishes a job within its handler's transaction, or ends that transaction with TN001 when
-- the claim was lost. The pool's user calls it, in a session whose settings are for tenants'
-- statements: so it brings those that job SQL has, for a plan that was made while a table was
-- small is kept when it has become large. keep says whether the finished job can be looked at.
-- It notes that the run took so long, in µs, and on which node, and ends that are awaited.
CREATE OR REPLACE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone record;
BEGIN
    DELETE FROM tenure.job j WHERE j.id = job_id AND j.turn = job_turn
    RETURNING {{j.job}}, clock_timestamp() AS ended_at
    INTO gone;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
    IF keep THEN
        INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node)
        VALUES ({{gone.job | attempt = gone.attempt + 1}}, gone.ended_at, 'done', gone.ended_at - took_us * interval '1 microsecond', finish_in_tx.node);
    END IF;
    IF gone.unique_key IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = finish_in_tx.job_id;
    END IF;
    PERFORM tenure.note_ends(ARRAY[job_id], 'done');
END
$$;

-- For programs of version 55, which do not say how long a run took, and where.
CREATE OR REPLACE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT tenure.finish_in_tx(job_id, job_turn, keep, NULL, NULL)
$$;
