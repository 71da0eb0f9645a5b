-- Removes this session's claims that are not in its memory: the answer to the
-- INSERT got lost, so none of their jobs was started. Only claims older than any
-- INSERT that could still be on its way. $1 session, $2 the claims it knows.
DELETE FROM tenure.claim
WHERE session_id = $1 AND NOT (id = ANY($2::bigint[])) AND claimed_at < clock_timestamp() - interval '10 s'
RETURNING id;
