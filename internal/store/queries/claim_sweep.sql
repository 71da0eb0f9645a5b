-- Removes a session's claims that are not in its memory: the answer to the INSERT
-- got lost, so none of their jobs was started. Only under an epoch that was taken
-- after those INSERTs, as one could still be on its way otherwise.
-- $1 session, $2 the claims it knows.
DELETE FROM tenure.claim
WHERE session_id = $1 AND NOT (id = ANY($2::bigint[]))
RETURNING id;
