-- Removes a batch from the table $1 once it is durable in the other pool, with all that
-- belongs to its jobs. $2 ids.
WITH out_job AS (DELETE FROM tenure.job WHERE $1 = 'job' AND id = ANY ($2::bigint[]) RETURNING id, tenant_id, unique_key),
out_timer_job AS (DELETE FROM tenure.timer_job WHERE $1 = 'timer_job' AND id = ANY ($2::bigint[]) RETURNING id, tenant_id, unique_key),
out_external_job AS (DELETE FROM tenure.external_job WHERE $1 = 'external_job' AND id = ANY ($2::bigint[]) RETURNING id, tenant_id, unique_key),
out_suspended_job AS (DELETE FROM tenure.suspended_job WHERE $1 = 'suspended_job' AND id = ANY ($2::bigint[]) RETURNING id, tenant_id, unique_key),
out_dead_letter_job AS (DELETE FROM tenure.dead_letter_job WHERE $1 = 'dead_letter_job' AND id = ANY ($2::bigint[]) RETURNING id, tenant_id, unique_key),
gone AS (
    SELECT * FROM out_job
    UNION ALL SELECT * FROM out_timer_job
    UNION ALL SELECT * FROM out_external_job
    UNION ALL SELECT * FROM out_suspended_job
    UNION ALL SELECT * FROM out_dead_letter_job),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id),
forgotten AS (
    DELETE FROM tenure.job_error WHERE job_id = ANY ($2::bigint[])),
silenced AS (
    DELETE FROM tenure.job_report WHERE job_id = ANY ($2::bigint[])),
unasked AS (
    DELETE FROM tenure.cancel_request WHERE job_id = ANY ($2::bigint[]))
SELECT count(*) FROM gone;
