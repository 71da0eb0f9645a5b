-- Jobs among a session's claims that somebody wants ended. Each is looked up by its id: there may
-- be very many requests for jobs that wait. $1 session.
SELECT asked.job_id
FROM tenure.claim c
CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
CROSS JOIN LATERAL (SELECT r.job_id FROM tenure.cancel_request r WHERE r.job_id = run.id OFFSET 0) asked
WHERE c.session_id = $1;
