-- Batches, the newest first, as job_list has jobs: in the order of their ids, "listed_at" the time at which the
-- oldest of those down to it was made. $1 id or null, $2 tenant or null, $3 how many, $4 and $5 the place that the
-- list goes on behind, or null.
SELECT w.job_id, w.tenant_id, w.on_failure, w.created_at, w.closed_at, w.listed_at
FROM (SELECT *, greatest(least(min(created_at) OVER (ORDER BY job_id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at FROM tenure.awaiting
      WHERE batch AND ($1::bigint IS NULL OR job_id = $1) AND ($2::text IS NULL OR tenant_id = $2)) w
WHERE $4::timestamptz IS NULL OR (w.listed_at, w.job_id) < ($4, $5::bigint)
ORDER BY w.job_id DESC LIMIT $3;
