-- Opens a session. $1 session, $2 kinds that its node handles, $3 their queues, $4 node, $5 member, $6 gossip address, $7 version,
-- $8 ttl in ms, $9 how many jobs of one tenant the node runs at a time, or null. Opening it again, after a lost answer, changes nothing.
WITH {{kind_queues}}
INSERT INTO tenure.node_session (session_id, node, member, gossip_addr, version, kinds, expires_at, per_tenant)
VALUES ($1, $4, $5, $6, $7, $2, clock_timestamp() + $8::bigint * interval '1 ms', $9)
ON CONFLICT (session_id) DO NOTHING;
