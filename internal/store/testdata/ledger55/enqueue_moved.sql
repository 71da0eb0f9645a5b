-- The first of some tenants whose jobs are refused, why, and as tenure.enqueue says more of it: it has
-- left this pool, and where to, or has its quota of jobs. $1 tenants.
SELECT tenant_id, CASE state WHEN 'moved' THEN 'moved' ELSE 'quota' END AS refused, CASE state WHEN 'moved' THEN other_pool ELSE max_waiting::text END AS other_pool
FROM tenure.tenant
WHERE tenant_id = ANY ($1::text[]) AND (state = 'moved' OR over_quota_at > clock_timestamp() - interval '1 minute' AND max_waiting IS NOT NULL)
ORDER BY state = 'moved' DESC
LIMIT 1;
