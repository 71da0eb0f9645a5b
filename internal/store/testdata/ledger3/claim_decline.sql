-- Gives back what was claimed for a session that leaves and that it has not taken
-- over. $1 session.
DELETE FROM tenure.claim WHERE session_id = $1 AND given AND started_at IS NULL;
