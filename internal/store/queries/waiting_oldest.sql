-- The job that has waited longest of the first two hundred thousand that no node has in hand, and for how long it could have started.
-- Beside those of kinds $1 and tenants $2.
WITH flying AS MATERIALIZED (
    SELECT unnest(job_ids) AS id FROM tenure.claim)
SELECT w.queue, w.kind, extract(epoch FROM clock_timestamp() - w.ready_at)::double precision
FROM (SELECT j.queue, j.kind, j.tenant_id, coalesce(j.ready_at, j.created_at) AS ready_at -- one with a low id may have been a timer until now
      FROM tenure.job j
      WHERE j.id NOT IN (SELECT f.id FROM flying f)
      ORDER BY j.id LIMIT 200000) w
WHERE isfinite(w.ready_at) AND w.kind <> ALL ($1::text[]) AND w.tenant_id <> ALL ($2::text[])
ORDER BY w.ready_at LIMIT 1;
