-- The operation whose next step has been due for longest. Its row is locked: two holders, of which one
-- does not know yet that it is none, do no step twice. whole: it is for all that was there when it was asked for.
SELECT id, action, coalesce(tenant_id, ''), coalesce(kind, ''), coalesce(error, ''), ltrim(coalesce(dead_group, ''), '+'), died_before, died_before >= created_at AS whole, coalesce(per_second, 0),
       coalesce(queue, ''), coalesce(job_state, ''), coalesce(tag, ''), coalesce(correlation_id, ''), pass, after_id
FROM tenure.operation
WHERE ended_at IS NULL AND next_at <= clock_timestamp()
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED;
