-- The first $2 jobs, by id, that the job $1 still awaits: dead letters, too, if it waits for them to be retried.
SELECT a.job_id FROM tenure.awaited a WHERE a.awaiting_id = $1 AND a.outcome IS NULL ORDER BY a.outcome, a.job_id LIMIT $2;
