-- Operations, the newest first. $1 id, null: all, $2 how many at most.
SELECT id, action, coalesce(tenant_id, ''), coalesce(kind, ''), coalesce(error, ''), ltrim(coalesce(dead_group, ''), '+'), died_before, coalesce(per_second, 0),
       coalesce(queue, ''), coalesce(job_state, ''), coalesce(tag, ''), coalesce(correlation_id, ''),
       asked_by, created_at, CASE state WHEN 'begun' THEN 'running' ELSE state END, ended_at, done, key_taken, left_dead, coalesce(failure, '')
FROM tenure.operation
WHERE $1::uuid IS NULL OR id = $1
ORDER BY created_at DESC, id
LIMIT $2;
