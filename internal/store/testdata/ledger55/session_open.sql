-- Opens a session. $1 session, $2 node, $3 member, $4 gossip address, $5 version,
-- $6 kinds, $7 ttl in ms, $8 how many jobs of one tenant the node runs at a time, or null. Opening it again, after a lost answer, changes nothing.
INSERT INTO tenure.node_session (session_id, node, member, gossip_addr, version, kinds, expires_at, per_tenant)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::bigint * interval '1 ms', $8)
ON CONFLICT (session_id) DO NOTHING;
