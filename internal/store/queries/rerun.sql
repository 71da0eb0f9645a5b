-- Adds a job that is what a finished one was; its meta says which. A unique key that the finished one has taken for a
-- period, and still has, stays with that one. No row: there is no such finished job. $1 id, $2 the pool's number.
WITH finished AS MATERIALIZED (
    SELECT f.* FROM tenure.completed_job f WHERE f.id = $1 ORDER BY f.finished_at DESC LIMIT 1),
added AS (
    INSERT INTO tenure.door AS d (call, pool, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id,
        unique_key, exclusive_key, timeout)
    SELECT CASE WHEN f.external THEN 'enqueue_external' ELSE 'enqueue' END, $2, f.tenant_id, f.queue, f.kind, f.payload, f.priority, f.max_attempts,
        CASE WHEN jsonb_typeof(f.meta) <> 'object' THEN f.meta ELSE coalesce(f.meta, '{}') || jsonb_build_object('tenure:rerun_of', f.id::text) END,
        f.correlation_id,
        CASE WHEN NOT EXISTS (SELECT FROM tenure.unique_period p WHERE p.tenant_id = f.tenant_id AND p.key = f.unique_key AND p.job_id = f.id AND p.free_at > clock_timestamp()) THEN f.unique_key END,
        f.exclusive_key, f.timeout_ms * interval '1 ms'
    FROM finished f
    RETURNING d.id, d.duplicate, d.refused, d.other_pool)
SELECT f.tenant_id, f.queue, f.priority, a.* FROM finished f, added a;
