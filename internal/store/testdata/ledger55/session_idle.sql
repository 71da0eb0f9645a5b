-- Says of a session that was ended because nobody needed it whether its node still lives:
-- anyone who lists sessions takes one that has left for idle if it expires half a day later
-- than it was seen last, and was seen lately. $1 session, $2 for how long in ms, 0: not at all.
UPDATE tenure.node_session
SET last_seen = clock_timestamp(), expires_at = clock_timestamp() + $2::bigint * interval '1 ms'
WHERE session_id = $1 AND state = 'left';
