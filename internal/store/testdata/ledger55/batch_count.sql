-- How the jobs of batches have ended so far. $1 the batches' ids. A job among the dead letters counts as
-- dead, also where it may be retried; one that was retried and has not ended counts as unfinished.
SELECT b.id, n.jobs, n.done, n.dead, n.cancelled, n.unknown
FROM unnest($1::bigint[]) AS b (id)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, count(*) FILTER (WHERE a.outcome = 'done') AS done,
           count(*) FILTER (WHERE a.outcome = 'dead' OR a.outcome IS NULL AND EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = a.job_id)) AS dead,
           count(*) FILTER (WHERE a.outcome = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE a.outcome = 'unknown') AS unknown
    FROM tenure.awaited a WHERE a.awaiting_id = b.id) n;
