-- The sessions of a pool with what they hold.
SELECT s.session_id, s.node, s.member, s.gossip_addr, s.version, s.kinds, s.state, s.hb_seq,
       s.started_at, s.last_seen, s.expires_at < clock_timestamp() AS expired,
       (SELECT count(*) FROM tenure.claim c WHERE c.session_id = s.session_id) AS claims
FROM tenure.node_session s
ORDER BY s.started_at;
