-- The claims that a session made for itself. $1 session.
SELECT id FROM tenure.claim WHERE session_id = $1 AND NOT given;
