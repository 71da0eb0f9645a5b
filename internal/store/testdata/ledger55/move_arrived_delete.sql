-- Removes finished jobs whose removal was cut short. $1 tenant, $2 ids.
WITH gone AS (
    DELETE FROM tenure.completed_job WHERE tenant_id = $1 AND id = ANY ($2::bigint[]) RETURNING id),
silenced AS (
    DELETE FROM tenure.job_report r USING gone WHERE r.job_id = gone.id)
DELETE FROM tenure.job_error e USING gone WHERE e.job_id = gone.id;
