-- Says which kinds a session's node handles by now. $1 session, $2 kinds.
UPDATE tenure.node_session SET kinds = $2 WHERE session_id = $1 AND state = 'live';
