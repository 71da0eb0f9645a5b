-- Declares a session dead under the fence, without waiting for its row: who has locked
-- it may be its own heartbeat. $1 the session, $2 its hb_seq as the caller saw it stand
-- still, $3 and $4 the caller's own session and epoch, $5 whether that was for so long
-- that it counts for nothing what the database's clock says: it may have been set back.
UPDATE tenure.node_session
SET state = 'dead'
WHERE session_id = ANY (ARRAY(
    SELECT s.session_id FROM tenure.node_session s
    WHERE s.session_id = $1 AND s.hb_seq = $2 AND s.state = 'live' AND (s.expires_at < clock_timestamp() OR $5)
      AND EXISTS (SELECT FROM tenure.acquire_lock
                  WHERE name = 'acquire' AND holder = $3 AND epoch = $4 AND expires_at > clock_timestamp()
                  FOR KEY SHARE)
    FOR NO KEY UPDATE SKIP LOCKED));
