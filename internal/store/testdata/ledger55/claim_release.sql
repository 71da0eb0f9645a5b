-- Removes claims of a session whose jobs have all come to an end. The session is named
-- because a fail-over may have given their numbers to others. $1 session, $2 claims.
DELETE FROM tenure.claim WHERE session_id = $1 AND id = ANY($2::bigint[]);
