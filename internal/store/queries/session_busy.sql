-- Says what keeps the workers of a session's node. $1 session, $2 what, or null.
UPDATE tenure.node_session SET busy = $2 WHERE session_id = $1 AND state = 'live';
