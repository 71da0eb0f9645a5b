-- Every limit that is set. A tenant's own number of jobs in flight stands with the tenant. Of a queue or kind
-- that is frozen none may be in flight, whichever tenant's.
SELECT tenant_id, scope, name, coalesce(max_running, 0) AS most, coalesce(rate, 0) AS rate, coalesce(per_ms, 0) AS per_ms, coalesce(burst, 0) AS burst
FROM tenure.job_limit
UNION ALL
SELECT tenant_id, 'tenant', '', greatest(max_running, 1), 0, 0, 0 FROM tenure.tenant WHERE max_running IS NOT NULL
UNION ALL
SELECT '', 'frozen ' || scope, name, -1, 0, 0, 0 FROM tenure.frozen;
