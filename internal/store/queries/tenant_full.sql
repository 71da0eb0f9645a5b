-- The tenants of whom more jobs are refused, as the most that may wait do: see quota_check.sql.
SELECT tenant_id FROM tenure.tenant
WHERE over_quota_at > clock_timestamp() - interval '1 minute' AND max_waiting IS NOT NULL
ORDER BY tenant_id;
