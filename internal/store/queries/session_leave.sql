-- Ends a session that has no claim left; no row: a claim is left, or it was reaped.
UPDATE tenure.node_session
SET state = 'left', last_seen = clock_timestamp()
WHERE session_id = $1 AND state = 'live'
  AND NOT EXISTS (SELECT FROM tenure.claim WHERE session_id = $1);
