-- Takes unique keys of a tenant that arrives for their periods. $1 the rows as JSON.
INSERT INTO tenure.unique_period AS p (tenant_id, key, job_id, free_at)
SELECT r.tenant_id, r.key, r.job_id, r.free_at
FROM unnest($1::text[]) AS l (text)
CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.unique_period, l.text::jsonb) AS r
ON CONFLICT (tenant_id, key) DO UPDATE SET job_id = excluded.job_id, free_at = excluded.free_at
WHERE p.free_at < excluded.free_at;
