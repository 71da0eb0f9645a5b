-- Adds one job unless an unfinished job of the tenant has the same key; then that
-- one's id comes back. No row: this database is not the pool numbered $1, the tenant
-- has left it or arrives just now, when not all its keys are here yet, or the
-- key's job was added by a transaction that this statement does not see yet (then
-- running it again shows it). Parameters as in enqueue_later, and $12 the key.
-- A timer when $10 or $11 is given, else waiting.
WITH mine AS (
    INSERT INTO tenure.unique_job (tenant_id, key, job_id)
    SELECT $2, $12, nextval('tenure.job_id') FROM tenure.pool
    WHERE number = $1
      AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $2 AND t.state IN ('moved', 'arriving'))
    ON CONFLICT DO NOTHING
    RETURNING job_id),
waiting AS (
    INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key)
    SELECT job_id, $2, $3, $4, $5::jsonb, $6, $7, $8::jsonb, $9, $12
    FROM mine WHERE $10::timestamptz IS NULL AND $11::bigint IS NULL),
timer AS (
    INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due_at)
    SELECT job_id, $2, $3, $4, $5::jsonb, $6, $7, $8::jsonb, $9, $12,
           coalesce($10::timestamptz, clock_timestamp() + $11::bigint * interval '1 ms')
    FROM mine WHERE $10::timestamptz IS NOT NULL OR $11::bigint IS NOT NULL)
SELECT job_id AS id, false AS duplicate FROM mine
UNION ALL
SELECT u.job_id, true FROM tenure.unique_job u, tenure.pool
WHERE u.tenant_id = $2 AND u.key = $12 AND tenure.pool.number = $1 AND NOT EXISTS (SELECT FROM mine)
  AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $2 AND t.state IN ('moved', 'arriving'));
