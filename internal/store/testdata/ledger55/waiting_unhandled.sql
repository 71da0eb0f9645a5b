-- Kinds that jobs wait for and no live node has a handler for, among the first
-- 10000 waiting jobs.
SELECT j.kind, count(*)
FROM (SELECT kind FROM tenure.job LIMIT 10000) j
WHERE j.kind NOT IN (SELECT unnest(kinds) FROM tenure.node_session WHERE state = 'live' AND expires_at > clock_timestamp())
GROUP BY j.kind ORDER BY j.kind;
