-- Has a job await others that are added in the same transaction. $1 tenant, $2 the job, $3 ids.
INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id)
SELECT $1, $2::bigint, m.id FROM unnest($3::bigint[]) AS m (id) ORDER BY m.id;
