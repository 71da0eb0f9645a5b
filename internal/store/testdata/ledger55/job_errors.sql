-- A job's failed runs, oldest first. $1 id.
SELECT attempt, at, node, error, coalesce(stack, ''), CASE WHEN isfinite(began) THEN began END AS began FROM tenure.job_error WHERE job_id = $1 ORDER BY at;
