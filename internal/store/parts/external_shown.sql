-- What lists of external workers' jobs show of each, j.
j.id, j.turn, j.locked_by, j.lock_expires_at, j.tenant_id, j.queue, j.kind, j.attempt, j.max_attempts, j.created_at, j.due_at, j.correlation_id,
       CASE WHEN j.attempt > 0 THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = j.id ORDER BY e.attempt BETWEEN j.attempt AND j.attempt + 1 DESC, e.at DESC LIMIT 1) END AS error
