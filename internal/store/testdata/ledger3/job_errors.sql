-- A job's failed runs, oldest first. $1 id.
SELECT attempt, at, node, error, coalesce(stack, '') FROM tenure.job_error WHERE job_id = $1 ORDER BY at;
