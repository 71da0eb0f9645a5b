-- Removes a session's claims that are not in its memory: the answer to the INSERT
-- got lost, so none of their jobs was started. Only under an epoch that was taken
-- after those INSERTs, as one could still be on its way otherwise. What others gave
-- it is not meant: the session takes that over, see claim_accept.
-- $1 session, $2 the claims it knows.
DELETE FROM tenure.claim
WHERE session_id = $1 AND NOT given AND NOT (id = ANY($2::bigint[]))
RETURNING id;
