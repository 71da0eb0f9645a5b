-- Topics of jobs that wait for workers outside the cluster, none of which has one locked: how many of the first $1 such jobs are
-- of each, and for how long the oldest of those has been there.
WITH waiting AS MATERIALIZED (
    SELECT kind, created_at FROM tenure.external_job WHERE lock_expires_at IS NULL AND due_at IS NULL LIMIT $1)
SELECT w.kind, count(*), coalesce(extract(epoch FROM clock_timestamp() - min(w.created_at) FILTER (WHERE isfinite(w.created_at))), 0)::double precision
FROM waiting w
WHERE NOT EXISTS (SELECT FROM tenure.external_job e WHERE e.kind = w.kind AND e.lock_expires_at IS NOT NULL)
GROUP BY w.kind ORDER BY w.kind;
