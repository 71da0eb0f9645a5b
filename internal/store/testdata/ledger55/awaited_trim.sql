-- Forgets what jobs awaited that are gone, finished ones aside, and were closed longer ago than $3 ms:
-- of the next $4 of them behind the time $1 and the job $2, up to $4 rows in one statement. They
-- themselves are forgotten once no such row is left. How many rows that were, and, where none is left
-- and more jobs may be, the last one that was looked at.
WITH page AS MATERIALIZED (
    SELECT w.closed_at, w.job_id FROM tenure.awaiting w
    WHERE w.closed_at < (SELECT clock_timestamp() - $3::bigint * interval '1 ms')
      AND (w.closed_at, w.job_id) > ($1::timestamptz, $2::bigint)
    ORDER BY w.closed_at, w.job_id LIMIT $4),
over AS MATERIALIZED (
    SELECT w.job_id FROM page p JOIN tenure.awaiting w ON w.job_id = p.job_id
    WHERE NOT tenure.is_unfinished(p.job_id) AND NOT EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = p.job_id)
    FOR UPDATE OF w SKIP LOCKED),
member AS MATERIALIZED (
    SELECT a.awaiting_id, a.job_id FROM over o JOIN tenure.awaited a ON a.awaiting_id = o.job_id LIMIT $4),
gone AS (
    DELETE FROM tenure.awaited a USING member m WHERE a.job_id = m.job_id AND a.awaiting_id = m.awaiting_id),
forgotten AS (
    DELETE FROM tenure.awaiting w USING over o WHERE w.job_id = o.job_id AND (SELECT count(*) FROM member) < $4)
SELECT (SELECT count(*) FROM member) AS removed, l.closed_at AS last_closed, l.job_id AS last_job
FROM (SELECT count(*) AS n FROM page) p
LEFT JOIN (SELECT q.closed_at, q.job_id FROM page q ORDER BY q.closed_at DESC, q.job_id DESC LIMIT 1) l
       ON p.n = $4 AND (SELECT count(*) FROM member) < $4;
