-- Notes that somebody wants jobs ended, of those that are a tenant's and wait here, for their turn or
-- for their time. $1 ids, $2 tenant.
INSERT INTO tenure.cancel_request (job_id)
SELECT id FROM tenure.job WHERE id = ANY ($1::bigint[]) AND tenant_id = $2
UNION ALL
SELECT id FROM tenure.timer_job WHERE id = ANY ($1::bigint[]) AND tenant_id = $2
ON CONFLICT DO NOTHING;
