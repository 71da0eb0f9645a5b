-- Adds the job that a row of tenure.door asks for with what links it to others of its tenant.
CREATE OR REPLACE FUNCTION tenure.add_linked_job(asked record, OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = on AS $$
DECLARE
    awaits  CONSTANT boolean := coalesce(asked.as_batch, false) OR coalesce(cardinality(asked.after_jobs), 0) > 0;
    fault   CONSTANT text := CASE
        WHEN cardinality(asked.after_jobs) > 1000 THEN 'after_jobs: at most 1000 are allowed'
        WHEN array_position(asked.after_jobs, NULL) IS NOT NULL OR 0 >= ANY (asked.after_jobs) THEN 'after_jobs: ids of jobs are above 0'
        WHEN asked.in_batch <= 0 THEN 'in_batch: ids of batches are above 0'
        WHEN asked.on_failure IS NULL OR asked.on_failure NOT IN ('wait', 'cancel', 'run') THEN 'on_failure: wait, cancel and run are allowed'
        WHEN asked.on_failure <> 'wait' AND NOT awaits THEN 'on_failure: it is for jobs with after_jobs or as_batch'
        WHEN awaits AND (asked.run_at IS NOT NULL OR asked.delay IS NOT NULL) THEN 'run_at, delay: a job that starts when others have ended cannot have a time as well'
    END;
    missing bigint[] := ARRAY(SELECT DISTINCT a FROM unnest(asked.after_jobs) a);
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue_linked: %', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF awaits THEN
        asked.run_at := tenure.never();
    END IF;
    SELECT a.* INTO id, duplicate, refused, other_pool FROM tenure.add_job(asked) a;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    IF (asked.in_batch IS NOT NULL OR cardinality(missing) > 0)
       AND EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = asked.tenant AND t.state = 'arriving') THEN
        refused := 'arriving'; -- not all that it may be linked to is here yet
        RAISE EXCEPTION USING ERRCODE = 'TN007';
    END IF;
    IF asked.in_batch IS NOT NULL THEN
        PERFORM FROM tenure.awaiting w
        WHERE w.job_id = asked.in_batch AND w.tenant_id = asked.tenant AND w.batch AND w.closed_at IS NULL
        FOR SHARE; -- it is not closed before this commits
        IF NOT FOUND OR NOT tenure.is_awaiting(asked.in_batch) THEN
            refused := 'no batch';
            other_pool := asked.in_batch;
            RAISE EXCEPTION USING ERRCODE = 'TN007';
        END IF;
        INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id) VALUES (asked.tenant, asked.in_batch, id);
    END IF;
    IF NOT awaits THEN
        RETURN;
    END IF;
    INSERT INTO tenure.awaiting (job_id, tenant_id, on_failure, batch) VALUES (id, asked.tenant, asked.on_failure, asked.as_batch);
    FOR look IN 1..3 LOOP -- they may move while they are looked for
        EXIT WHEN cardinality(missing) = 0;
        WITH w AS (SELECT j.id FROM tenure.job j WHERE j.id = ANY (missing) AND j.tenant_id = asked.tenant ORDER BY j.id FOR KEY SHARE),
        t AS (SELECT j.id FROM tenure.timer_job j WHERE j.id = ANY (missing) AND j.tenant_id = asked.tenant ORDER BY j.id FOR KEY SHARE),
        x AS (SELECT j.id FROM tenure.external_job j WHERE j.id = ANY (missing) AND j.tenant_id = asked.tenant ORDER BY j.id FOR KEY SHARE),
        s AS (SELECT j.id FROM tenure.suspended_job j WHERE j.id = ANY (missing) AND j.tenant_id = asked.tenant ORDER BY j.id FOR KEY SHARE),
        d AS (SELECT j.id FROM tenure.dead_letter_job j WHERE j.id = ANY (missing) AND j.tenant_id = asked.tenant ORDER BY j.id FOR KEY SHARE),
        c AS (SELECT DISTINCT ON (j.id) j.id, CASE j.outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END AS outcome FROM tenure.completed_job j
              WHERE j.id = ANY (missing) AND j.tenant_id = asked.tenant ORDER BY j.id, j.finished_at DESC),
        noted AS (
            INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id, outcome)
            SELECT asked.tenant, add_linked_job.id, f.id, f.outcome
            FROM (SELECT w.id, NULL AS outcome FROM w UNION ALL SELECT t.id, NULL FROM t UNION ALL SELECT x.id, NULL FROM x UNION ALL SELECT s.id, NULL FROM s
                  UNION ALL SELECT d.id, CASE WHEN asked.on_failure <> 'wait' THEN 'dead' END FROM d
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
    INSERT INTO tenure.awaited_end (tenant_id, awaiting_id) VALUES (asked.tenant, id); -- all may have ended before
EXCEPTION WHEN SQLSTATE 'TN007' THEN
    id := NULL;
    duplicate := NULL;
    IF asked.pool IS NOT NULL THEN
        RETURN;
    END IF;
    CASE refused
    WHEN 'no job' THEN
        RAISE EXCEPTION 'tenant % has no job % to start after', asked.tenant, other_pool
            USING ERRCODE = 'TN007', HINT = 'It may have ended so long ago that it is not kept any more: add both in one transaction.';
    WHEN 'no batch' THEN
        RAISE EXCEPTION 'job % is not the completion job of an open batch of tenant %', other_pool, asked.tenant
            USING ERRCODE = 'TN007', HINT = 'Jobs can be added to a batch until all of its jobs have ended.';
    ELSE
        PERFORM tenure.enqueue_raise('', asked.tenant, refused, other_pool);
    END CASE;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.add_linked_job FROM PUBLIC;
