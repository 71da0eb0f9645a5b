-- Says which kinds a session's node handles by now. $1 session, $2 kinds, $3 their queues.
WITH {{kind_queues}}
UPDATE tenure.node_session SET kinds = $2 WHERE session_id = $1 AND state = 'live';
