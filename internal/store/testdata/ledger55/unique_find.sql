-- The job that has a tenant's unique key, or took it for a period that is not over. $1 tenant, $2 key.
SELECT job_id FROM tenure.unique_period WHERE tenant_id = $1 AND key = $2 AND free_at > clock_timestamp()
UNION ALL
SELECT job_id FROM tenure.unique_job WHERE tenant_id = $1 AND key = $2
LIMIT 1;
