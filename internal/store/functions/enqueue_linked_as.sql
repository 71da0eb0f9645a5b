-- What tenure.enqueue_linked does for a caller.
CREATE OR REPLACE FUNCTION tenure.enqueue_linked_as(caller text, tenant text, kind text, payload jsonb, queue text,
        priority integer, run_at timestamptz, delay interval, max_attempts integer, meta jsonb, correlation_id text,
        unique_key text, pool integer, with_data boolean, exclusive_key text, timeout interval, unique_for interval,
        tags text[], after_jobs bigint[], on_failure text, as_batch boolean, in_batch bigint,
        OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = on AS $$
DECLARE
    awaits  CONSTANT boolean := coalesce(as_batch, false) OR coalesce(cardinality(after_jobs), 0) > 0;
    fault   CONSTANT text := CASE
        WHEN cardinality(after_jobs) > 1000 THEN 'after_jobs: at most 1000 are allowed'
        WHEN array_position(after_jobs, NULL) IS NOT NULL OR 0 >= ANY (after_jobs) THEN 'after_jobs: ids of jobs are above 0'
        WHEN in_batch <= 0 THEN 'in_batch: ids of batches are above 0'
        WHEN on_failure IS NULL OR on_failure NOT IN ('wait', 'cancel', 'run') THEN 'on_failure: wait, cancel and run are allowed'
        WHEN on_failure <> 'wait' AND NOT awaits THEN 'on_failure: it is for jobs with after_jobs or as_batch'
        WHEN awaits AND (run_at IS NOT NULL OR delay IS NOT NULL) THEN 'run_at, delay: a job that starts when others have ended cannot have a time as well'
    END;
    missing bigint[] := ARRAY(SELECT DISTINCT a FROM unnest(after_jobs) a);
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue_linked: %', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT e.id, e.duplicate, e.refused, e.other_pool INTO id, duplicate, refused, other_pool
    FROM tenure.enqueue_as(caller, tenant, kind, payload, queue, priority,
        CASE WHEN awaits THEN tenure.never() ELSE run_at END, CASE WHEN NOT awaits THEN delay END,
        max_attempts, meta, correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags) e;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    IF (in_batch IS NOT NULL OR cardinality(missing) > 0)
       AND EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = enqueue_linked_as.tenant AND t.state = 'arriving') THEN
        refused := 'arriving'; -- not all that it may be linked to is here yet
        RAISE EXCEPTION USING ERRCODE = 'TN007';
    END IF;
    IF in_batch IS NOT NULL THEN
        PERFORM FROM tenure.awaiting w
        WHERE w.job_id = in_batch AND w.tenant_id = enqueue_linked_as.tenant AND w.batch AND w.closed_at IS NULL
        FOR SHARE; -- it is not closed before this commits
        IF NOT FOUND OR NOT tenure.is_awaiting(in_batch) THEN
            refused := 'no batch';
            other_pool := in_batch;
            RAISE EXCEPTION USING ERRCODE = 'TN007';
        END IF;
        INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id) VALUES (tenant, in_batch, id);
    END IF;
    IF NOT awaits THEN
        RETURN;
    END IF;
    INSERT INTO tenure.awaiting (job_id, tenant_id, on_failure, batch) VALUES (id, tenant, on_failure, as_batch);
    FOR look IN 1..3 LOOP -- they may move while they are looked for
        EXIT WHEN cardinality(missing) = 0;
        WITH w AS (SELECT j.id FROM tenure.job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        t AS (SELECT j.id FROM tenure.timer_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        x AS (SELECT j.id FROM tenure.external_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        s AS (SELECT j.id FROM tenure.suspended_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        d AS (SELECT j.id FROM tenure.dead_letter_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        c AS (SELECT DISTINCT ON (j.id) j.id, CASE j.outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END AS outcome FROM tenure.completed_job j
              WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id, j.finished_at DESC),
        noted AS (
            INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id, outcome)
            SELECT enqueue_linked_as.tenant, enqueue_linked_as.id, f.id, f.outcome
            FROM (SELECT w.id, NULL AS outcome FROM w UNION ALL SELECT t.id, NULL FROM t UNION ALL SELECT x.id, NULL FROM x UNION ALL SELECT s.id, NULL FROM s
                  UNION ALL SELECT d.id, CASE WHEN on_failure <> 'wait' THEN 'dead' END FROM d
                  UNION ALL SELECT c.id, c.outcome FROM c) f
            ON CONFLICT DO NOTHING
            RETURNING job_id)
        SELECT coalesce(array_agg(m.id), '{}') INTO missing FROM unnest(missing) AS m (id) WHERE m.id NOT IN (SELECT n.job_id FROM noted n);
    END LOOP;
    IF cardinality(missing) > 0 THEN
        refused := 'no job';
        other_pool := missing[1];
        RAISE EXCEPTION USING ERRCODE = 'TN007';
    END IF;
    INSERT INTO tenure.awaited_end (tenant_id, awaiting_id) VALUES (tenant, id); -- all may have ended before
EXCEPTION WHEN SQLSTATE 'TN007' THEN
    id := NULL;
    duplicate := NULL;
    IF pool IS NOT NULL THEN
        RETURN;
    END IF;
    CASE refused
    WHEN 'no job' THEN
        RAISE EXCEPTION 'tenant % has no job % to start after', tenant, other_pool
            USING ERRCODE = 'TN007', HINT = 'It may have ended so long ago that it is not kept any more: add both in one transaction.';
    WHEN 'no batch' THEN
        RAISE EXCEPTION 'job % is not the completion job of an open batch of tenant %', other_pool, tenant
            USING ERRCODE = 'TN007', HINT = 'Jobs can be added to a batch until all of its jobs have ended.';
    ELSE
        PERFORM tenure.enqueue_raise('', tenant, refused, other_pool);
    END CASE;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_linked_as FROM PUBLIC;
