-- Takes in up to most ends of awaited jobs, under the fence: notes them, and has those jobs start
-- that await no others any more, or cancels them, as their on_failure says. A job starts by having
-- its time set, with which the ends go into its meta. One that somebody adds to, or whose row somebody
-- has locked, is noted again, for the next time. Nothing is done when the lock is lost. awaits: there are
-- jobs that await others.
CREATE OR REPLACE FUNCTION tenure.settle_awaited(holder uuid, epoch bigint, most integer, keep boolean,
        OUT taken bigint, OUT started bigint, OUT cancelled bigint, OUT awaits boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    touched  bigint[];
    asked    bigint[];
    complete bigint[];
    unwanted bigint[];
    standing bigint[];
    free     bigint[];
BEGIN
    taken := 0;
    started := 0;
    cancelled := 0;
    awaits := EXISTS (SELECT FROM tenure.awaiting w WHERE w.closed_at IS NULL);
    PERFORM FROM tenure.acquire_lock l
    WHERE l.name = 'acquire' AND l.holder = settle_awaited.holder AND l.epoch = settle_awaited.epoch
      AND NOT l.paused AND l.expires_at > clock_timestamp()
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM tenure.awaited_end e
        WHERE e.id = ANY (ARRAY(
            SELECT f.id FROM tenure.awaited_end f
            WHERE f.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
            ORDER BY f.id LIMIT most
            FOR UPDATE SKIP LOCKED))
        RETURNING e.id, e.job_id, e.outcome, e.awaiting_id),
    first AS ( -- the one that ends the waiting: a dead letter may be retried, or was meanwhile
        SELECT DISTINCT ON (a.awaiting_id, a.job_id) a.awaiting_id, a.job_id, g.outcome
        FROM gone g
        CROSS JOIN LATERAL (SELECT o.awaiting_id, o.job_id FROM tenure.awaited o WHERE o.job_id = g.job_id AND o.outcome IS NULL OFFSET 0) a
        JOIN tenure.awaiting w ON w.job_id = a.awaiting_id
        WHERE g.outcome <> 'dead' OR w.on_failure <> 'wait' AND EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = g.job_id)
        ORDER BY a.awaiting_id, a.job_id, g.id),
    noted AS (
        UPDATE tenure.awaited a SET outcome = f.outcome FROM first f
        WHERE a.job_id = f.job_id AND a.awaiting_id + 0 = f.awaiting_id -- found by the job: a batch may have a million
        RETURNING a.awaiting_id)
    SELECT (SELECT count(*) FROM gone),
           ARRAY(SELECT n.awaiting_id FROM noted n UNION SELECT g.awaiting_id FROM gone g WHERE g.awaiting_id IS NOT NULL)
    INTO taken, asked;
    IF cardinality(asked) = 0 THEN
        RETURN;
    END IF;
    touched := ARRAY(SELECT w.job_id FROM tenure.awaiting w WHERE w.job_id = ANY (asked) AND w.closed_at IS NULL FOR UPDATE SKIP LOCKED);
    -- From here on nobody adds to them, and what was added can be seen.
    standing := ARRAY(SELECT w.id FROM unnest(touched) AS w (id) WHERE tenure.is_awaiting(w.id));
    unwanted := ARRAY(
        SELECT w.job_id FROM tenure.awaiting w
        WHERE w.job_id = ANY (touched) AND w.on_failure <> 'run'
          AND EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = w.job_id AND a.outcome IN ('dead', 'cancelled')));
    complete := ARRAY(
        SELECT w.id FROM unnest(touched) AS w (id)
        WHERE w.id <> ALL (unwanted)
          AND (w.id <> ALL (standing) -- it was started or given a time by hand, or has ended
               OR NOT EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = w.id AND a.outcome IS NULL)));
    free := ARRAY(SELECT j.id FROM tenure.timer_job j WHERE j.id = ANY (standing) AND j.due_at = tenure.never() FOR UPDATE SKIP LOCKED)
         || ARRAY(SELECT j.id FROM tenure.suspended_job j WHERE j.id = ANY (standing) AND j.due_at = tenure.never() FOR UPDATE SKIP LOCKED);
    UPDATE tenure.awaiting w SET closed_at = clock_timestamp()
    WHERE w.job_id = ANY (unwanted || complete) AND (w.job_id = ANY (free) OR w.job_id <> ALL (standing));
    asked := ARRAY(SELECT a.id FROM unnest(asked) AS a (id) WHERE a.id <> ALL (touched)
                   UNION ALL SELECT a.id FROM unnest(unwanted || complete) AS a (id) WHERE a.id = ANY (standing) AND a.id <> ALL (free));
    INSERT INTO tenure.awaited_end (tenant_id, awaiting_id)
    SELECT w.tenant_id, w.job_id FROM tenure.awaiting w WHERE w.job_id = ANY (asked) AND w.closed_at IS NULL; -- somebody has locked them
    unwanted := ARRAY(SELECT u.id FROM unnest(unwanted) AS u (id) WHERE u.id = ANY (free));
    complete := ARRAY(SELECT c.id FROM unnest(complete) AS c (id) WHERE c.id = ANY (free));
    UPDATE tenure.timer_job j SET due_at = clock_timestamp(), meta = coalesce(j.meta, '{}') || tenure.awaited_ends(j.id) WHERE j.id = ANY (complete);
    UPDATE tenure.suspended_job j SET due_at = clock_timestamp(), meta = coalesce(j.meta, '{}') || tenure.awaited_ends(j.id) WHERE j.id = ANY (complete);
    PERFORM tenure.cancel(u.id, keep) FROM unnest(unwanted) AS u (id);
    started := cardinality(complete);
    cancelled := cardinality(unwanted);
END
$$;
