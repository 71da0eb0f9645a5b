-- Topics of jobs that wait for workers outside the cluster, none of which has one locked, and not for one of their key that is
-- tried again: how many of the first $1 such jobs are of each, and for how long the oldest of those could have been taken.
WITH waiting AS MATERIALIZED (
    SELECT kind, coalesce(ready_at, created_at) AS ready_at FROM tenure.external_job e
    WHERE lock_expires_at IS NULL AND due_at IS NULL
      AND (exclusive_key IS NULL OR NOT EXISTS (SELECT FROM tenure.external_job again WHERE again.tenant_id = e.tenant_id AND again.exclusive_key = e.exclusive_key AND again.due_at IS NOT NULL AND again.attempt > 0
        AND (again.meta->'tenure:skip_retrying') IS DISTINCT FROM 'true'))
    LIMIT $1)
SELECT w.kind, count(*), coalesce(extract(epoch FROM clock_timestamp() - min(w.ready_at) FILTER (WHERE isfinite(w.ready_at))), 0)::double precision
FROM waiting w
WHERE NOT EXISTS (SELECT FROM tenure.external_job e WHERE e.kind = w.kind AND e.lock_expires_at IS NOT NULL)
GROUP BY w.kind ORDER BY w.kind;
