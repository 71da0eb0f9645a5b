-- Says that a session lives; no row: it was reaped. What comes back is the database's
-- clock. $1 session, $2 ttl in ms.
-- An expired session that nobody reaped goes on: its jobs were not touched.
UPDATE tenure.node_session
SET hb_seq = hb_seq + 1, last_seen = clock_timestamp(),
    expires_at = clock_timestamp() + $2::bigint * interval '1 ms'
WHERE session_id = $1 AND state = 'live'
RETURNING clock_timestamp();
