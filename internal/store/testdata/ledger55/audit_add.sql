-- Notes who does what. $1 who, $2 action, $3 tenant, null: the job's, $4 job or null, $5 subject or null, $6 detail or null.
INSERT INTO tenure.audit (who, action, tenant_id, job_id, subject, detail)
SELECT $1, $2, coalesce($3::text, (SELECT tenant_id FROM tenure.job WHERE id = $4), (SELECT tenant_id FROM tenure.timer_job WHERE id = $4),
    (SELECT tenant_id FROM tenure.external_job WHERE id = $4), (SELECT tenant_id FROM tenure.suspended_job WHERE id = $4),
    (SELECT tenant_id FROM tenure.dead_letter_job WHERE id = $4)), $4::bigint, $5, $6::jsonb;
