-- Accepts what was claimed for a session: every claim that was assigned to it and
-- that it does not know of, with the jobs in it. That they start is on record before
-- they do. Asking again after a lost answer returns the same claims. A claim whose
-- jobs are all gone comes as one row without a job.
-- Payload and meta that come to more than $3 bytes are not shown.
-- $1 session, $2 the claims it knows, $3 the bytes.
WITH mine AS (
    UPDATE tenure.claim
    SET started_at = coalesce(started_at, clock_timestamp())
    WHERE session_id = $1 AND given AND NOT (id = ANY($2::bigint[]))
    RETURNING id, turn, job_ids)
SELECT mine.id AS claim, j.id, mine.turn, j.kind, j.attempt, j.max_attempts, j.losses, j.timeout_ms,
       j.created_at, CASE WHEN size.fits THEN printed.payload END, CASE WHEN size.fits THEN printed.meta END, j.unique_key, j.correlation_id, j.tenant_id, j.queue, j.priority, j.exclusive_key,
       CASE WHEN isfinite(coalesce(j.ready_at, j.created_at)) THEN extract(epoch FROM clock_timestamp() - coalesce(j.ready_at, j.created_at)) ELSE 0 END::double precision AS waited
FROM mine
LEFT JOIN LATERAL (
    SELECT job.* FROM unnest(mine.job_ids) WITH ORDINALITY AS run (id, n)
    JOIN tenure.job ON job.id = run.id AND job.turn = mine.turn
    ORDER BY run.n) j ON true
CROSS JOIN LATERAL (
    SELECT pg_column_size(j.payload) + coalesce(pg_column_size(j.meta), 0) <= $3::bigint AS fits OFFSET 0) stored
CROSS JOIN LATERAL (
    SELECT CASE WHEN stored.fits THEN j.payload::text END AS payload, CASE WHEN stored.fits THEN j.meta::text END AS meta
    OFFSET 0) printed
CROSS JOIN LATERAL (
    SELECT octet_length(printed.payload) + coalesce(octet_length(printed.meta), 0) <= $3::bigint AS fits OFFSET 0) size;
