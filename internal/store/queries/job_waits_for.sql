-- What keeps the workers that a claimed job waits for; no row: it does not, or not for long. $1 job.
SELECT s.busy FROM tenure.claim c JOIN tenure.node_session s ON s.session_id = c.session_id
WHERE $1::bigint = ANY (c.job_ids) AND $1 = ANY (s.waiting) AND s.busy IS NOT NULL
LIMIT 1;
