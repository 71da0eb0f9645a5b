-- The job that has waited longest of those that no node has in hand, and for how long it could have started.
WITH flying AS MATERIALIZED (
    SELECT unnest(job_ids) AS id FROM tenure.claim)
SELECT j.queue, j.kind, extract(epoch FROM clock_timestamp() - coalesce(j.ready_at, j.created_at))::double precision
FROM tenure.job j
WHERE j.id NOT IN (SELECT f.id FROM flying f) AND isfinite(coalesce(j.ready_at, j.created_at))
ORDER BY j.id LIMIT 1;
