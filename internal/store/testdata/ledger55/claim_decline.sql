-- Gives back what was assigned to a session that leaves and that it has not
-- accepted. $1 session.
DELETE FROM tenure.claim WHERE session_id = $1 AND given AND started_at IS NULL;
