-- Makes nobody give claims to a session while it leaves: its row stays locked until
-- the transaction ends. $1 session.
SELECT FROM tenure.node_session WHERE session_id = $1 FOR UPDATE;
