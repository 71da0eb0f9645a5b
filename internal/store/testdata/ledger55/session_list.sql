-- The sessions of a pool with what they hold. idle: its node needs none here, and lived at
-- last_seen; see session_idle. ttl_ms: how long each said with its last heartbeat that it
-- outlives it, whatever the clock has done since.
SELECT s.session_id, s.node, s.member, s.gossip_addr, s.version, s.kinds, s.state, s.hb_seq,
       s.started_at, s.last_seen, s.expires_at < clock_timestamp() AS expired,
       s.state = 'left' AND s.expires_at > s.last_seen + interval '12 hours' AS idle,
       clock_timestamp() - s.last_seen AS unseen,
       greatest(0, extract(epoch FROM s.expires_at - s.last_seen) * 1000)::bigint AS ttl_ms,
       (SELECT count(*) FROM tenure.claim c WHERE c.session_id = s.session_id) AS claims
FROM tenure.node_session s
ORDER BY s.started_at;
