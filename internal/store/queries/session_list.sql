-- The sessions of a pool with what they hold. idle: its node needs none here, and lived at
-- last_seen; see session_idle.
SELECT s.session_id, s.node, s.member, s.gossip_addr, s.version, s.kinds, s.state, s.hb_seq,
       s.started_at, s.last_seen, s.expires_at < clock_timestamp() AS expired,
       s.state = 'left' AND s.expires_at > s.last_seen + interval '12 hours' AS idle,
       clock_timestamp() - s.last_seen AS unseen,
       (SELECT count(*) FROM tenure.claim c WHERE c.session_id = s.session_id) AS claims
FROM tenure.node_session s
ORDER BY s.started_at;
