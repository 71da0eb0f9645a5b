-- Notes how jobs have ended that some other job awaits. It is a statement of its own behind the one
-- that ended them, or a job that came to await one of them in between would not be seen: whoever has
-- a job await another keeps that one's row from being removed until he commits. Called by the statement
-- itself it is one, too: each of its own has a snapshot of its own, in which what the caller has
-- removed is gone. A job is noted as
-- done or cancelled only if it stands nowhere, and as dead only if it does among the dead letters: a
-- report about a run that had lost its claim has ended nothing. Its settings are those of who calls
-- it, as to set them would take longer than all that it does when nothing is awaited.
CREATE OR REPLACE FUNCTION tenure.note_ends(job_ids bigint[], how text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    -- Where nobody uses batches the table has no page. Else these jobs alone are asked about: rows of others
    -- that have ended may be many, and not removed for long.
    IF pg_relation_size('tenure.awaited') = 0 THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM tenure.awaited a WHERE a.job_id = ANY (job_ids) AND a.outcome IS NULL) THEN
        RETURN;
    END IF;
    INSERT INTO tenure.awaited_end (tenant_id, job_id, outcome)
    SELECT o.tenant_id, s.id, how
    FROM unnest(job_ids) AS s (id)
    CROSS JOIN LATERAL (SELECT a.tenant_id FROM tenure.awaited a WHERE a.job_id = s.id AND a.outcome IS NULL LIMIT 1) o
    WHERE NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = s.id)
      AND NOT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = s.id)
      AND NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.id = s.id)
      AND NOT EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = s.id)
      AND (how = 'dead') = EXISTS (SELECT FROM tenure.dead_letter_job j WHERE j.id = s.id);
END
$$;
