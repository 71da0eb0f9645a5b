-- Where the nodes that work on this pool gossip.
SELECT DISTINCT gossip_addr FROM tenure.node_session
WHERE state = 'live' AND gossip_addr <> '' AND expires_at > clock_timestamp();
