-- The holder's look for what was not noted: it goes on behind (after_job, after_awaiting) through
-- those that are awaited, at most so many, and notes the ends of jobs that stand nowhere any more, as
-- after a program of before this release has ended them. How one ended whose finished job was not
-- kept is unknown, which is no failure.
CREATE OR REPLACE FUNCTION tenure.note_missed_ends(after_job bigint, after_awaiting bigint, most integer,
        OUT missed bigint, OUT last_job bigint, OUT last_awaiting bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = on SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    WITH page AS MATERIALIZED (
        SELECT a.tenant_id, a.awaiting_id, a.job_id FROM tenure.awaited a
        WHERE a.outcome IS NULL AND (a.job_id, a.awaiting_id) > (after_job, after_awaiting)
        ORDER BY a.job_id, a.awaiting_id LIMIT most),
    ended AS (
        SELECT p.tenant_id, p.job_id, w.on_failure,
               EXISTS (SELECT FROM tenure.dead_letter_job j WHERE j.id = p.job_id) AS dead
        FROM page p JOIN tenure.awaiting w ON w.job_id = p.awaiting_id
        WHERE p.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
          AND NOT tenure.is_unfinished(p.job_id)
          AND p.job_id NOT IN (SELECT e.job_id FROM tenure.awaited_end e WHERE e.job_id IS NOT NULL)),
    noted AS (
        INSERT INTO tenure.awaited_end (tenant_id, job_id, outcome)
        SELECT DISTINCT e.tenant_id, e.job_id, CASE WHEN e.dead THEN 'dead' ELSE coalesce(
            (SELECT CASE c.outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END FROM tenure.completed_job c
             WHERE c.id = e.job_id ORDER BY c.finished_at DESC LIMIT 1), 'unknown') END
        FROM ended e WHERE NOT e.dead OR e.on_failure <> 'wait'
        RETURNING 1)
    SELECT (SELECT count(*) FROM noted), l.job_id, l.awaiting_id INTO missed, last_job, last_awaiting
    FROM (SELECT count(*) AS n FROM page) p
    LEFT JOIN (SELECT q.awaiting_id, q.job_id FROM page q ORDER BY q.job_id DESC, q.awaiting_id DESC LIMIT 1) l ON p.n = most;
END
$$;
