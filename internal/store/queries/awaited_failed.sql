-- The first job that did not end well of those that another one awaited, and what became of it; no row: there is none, or
-- it is forgotten. $1 the other one.
SELECT a.job_id, a.outcome FROM tenure.awaited a JOIN tenure.awaiting w ON w.job_id = a.awaiting_id
WHERE a.awaiting_id = $1::bigint AND w.on_failure <> 'run' AND a.outcome IN ('dead', 'cancelled')
ORDER BY a.job_id LIMIT 1;
