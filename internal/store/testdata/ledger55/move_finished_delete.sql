-- Removes finished jobs that are durable in the other pool, with their failed runs, by
-- where they stand: a finished job never changes. $1 partition, $2 places in it, $3 ids.
WITH gone AS (
    DELETE FROM tenure.completed_job
    WHERE tableoid = $1::bigint::oid AND ctid = ANY ($2::text[]::tid[]) AND id = ANY ($3::bigint[])
    RETURNING id),
silenced AS (
    DELETE FROM tenure.job_report r USING gone WHERE r.job_id = gone.id)
DELETE FROM tenure.job_error e USING gone WHERE e.job_id = gone.id;
