-- Finishes jobs of one turn within their handler's transaction, or ends that transaction with
-- TN001 when the claim on any of them was lost: what was done for it cannot be told from what was
-- done for the others. job_ids has no id twice. Otherwise as tenure.finish_in_tx. Rows are found
-- by arrays, not by joins, as a plan that was made while a table was small is kept; the jobs are of
-- one tenant.
-- It notes that the run took so long, in µs, and on which node, and ends that are awaited.
CREATE OR REPLACE FUNCTION tenure.finish_batch_in_tx(job_ids bigint[], job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ended    record;
    ended_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    WITH gone AS (
        DELETE FROM tenure.job j WHERE j.id = ANY (job_ids) AND j.turn = job_turn
        RETURNING {{j.job}}),
    kept AS (
        INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node)
        SELECT {{job | attempt = attempt + 1}}, ended_at, 'done', ended_at - took_us * interval '1 microsecond', finish_batch_in_tx.node
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
    PERFORM tenure.note_ends(job_ids, 'done');
END
$$;

-- For programs of version 55, which do not say how long a run took, and where.
CREATE OR REPLACE FUNCTION tenure.finish_batch_in_tx(job_ids bigint[], job_turn integer, keep boolean) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT tenure.finish_batch_in_tx(job_ids, job_turn, keep, NULL, NULL)
$$;
