-- How many jobs of a tenant are claimed, and by which node one of them is. $1 tenant.
SELECT count(*), coalesce(min(s.node), '') AS node
FROM tenure.claim c
CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn
LEFT JOIN tenure.node_session s ON s.session_id = c.session_id
WHERE j.tenant_id = $1;
