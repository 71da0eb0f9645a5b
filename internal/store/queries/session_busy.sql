-- Says which jobs of a session have waited for a worker of its node for long, and what keeps the workers. $1 session, $2 jobs, $3
-- what, or null.
UPDATE tenure.node_session SET waiting = $2, busy = $3 WHERE session_id = $1 AND state = 'live';
