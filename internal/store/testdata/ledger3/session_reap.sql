-- Declares a session dead under the fence. $1 the session, $2 its hb_seq as the
-- caller saw it stand still, $3 and $4 the caller's own session and epoch.
UPDATE tenure.node_session s
SET state = 'dead'
WHERE s.session_id = $1 AND s.hb_seq = $2 AND s.state = 'live' AND s.expires_at < clock_timestamp()
  AND EXISTS (SELECT FROM tenure.acquire_lock
              WHERE name = 'acquire' AND holder = $3 AND epoch = $4 AND expires_at > clock_timestamp()
              FOR KEY SHARE);
