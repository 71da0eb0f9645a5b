-- The job that has waited longest of those that no node has in hand, or that wait there for a worker, and for how long it
-- could have started.
WITH flying AS MATERIALIZED (
    {{in_hand}})
SELECT j.queue, j.kind, extract(epoch FROM clock_timestamp() - coalesce(j.ready_at, j.created_at))::double precision
FROM tenure.job j
WHERE j.id NOT IN (SELECT f.id FROM flying f) AND isfinite(coalesce(j.ready_at, j.created_at))
ORDER BY j.id LIMIT 1;
