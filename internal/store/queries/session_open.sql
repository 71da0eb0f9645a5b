-- Opens a session. $1 session, $2 kinds that its node handles, $3 node, $4 member, $5 gossip address, $6 version, $7 ttl in ms, $8 how
-- many jobs of one tenant the node runs at a time, or null. Opening it again, after a lost answer, changes nothing.
INSERT INTO tenure.node_session (session_id, node, member, gossip_addr, version, kinds, expires_at, per_tenant)
VALUES ($1, $3, $4, $5, $6, $2, clock_timestamp() + $7::bigint * interval '1 ms', $8)
ON CONFLICT (session_id) DO NOTHING;
