-- The claims that a session must know of: those it made for itself, and those it has
-- accepted. $1 session.
SELECT id FROM tenure.claim WHERE session_id = $1 AND (NOT given OR started_at IS NOT NULL);
