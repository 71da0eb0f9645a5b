-- Ends a session that has no claim left; no row: a claim is left. One that was
-- declared dead and whose claims are gone has nothing left to end, and stays dead.
UPDATE tenure.node_session
SET state = CASE state WHEN 'live' THEN 'left' ELSE state END, last_seen = clock_timestamp()
WHERE session_id = $1
  AND NOT EXISTS (SELECT FROM tenure.claim WHERE session_id = $1);
