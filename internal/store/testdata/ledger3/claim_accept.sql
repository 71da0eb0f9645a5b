-- Takes over what was claimed for a session: every claim that was given to it and
-- that it does not know of, with the jobs in it. That they start is on record before
-- they do. Asking again after a lost answer returns the same claims. A claim whose
-- jobs are all gone comes as one row without a job.
-- $1 session, $2 the claims it knows.
WITH mine AS (
    UPDATE tenure.claim
    SET started_at = coalesce(started_at, clock_timestamp())
    WHERE session_id = $1 AND given AND NOT (id = ANY($2::bigint[]))
    RETURNING id, turn, job_ids)
SELECT mine.id AS claim, j.id, mine.turn, j.kind, j.attempt, j.max_attempts, j.losses, j.timeout_ms,
       j.created_at, j.payload, j.meta, j.unique_key, j.correlation_id, j.tenant_id, j.queue, j.priority
FROM mine
LEFT JOIN LATERAL (
    SELECT job.* FROM unnest(mine.job_ids) WITH ORDINALITY AS run (id, n)
    JOIN tenure.job ON job.id = run.id AND job.turn = mine.turn
    ORDER BY run.n) j ON true;
