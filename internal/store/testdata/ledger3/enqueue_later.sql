-- Adds one timer; no row: this database is not the pool numbered $1, or
-- the tenant has left it. Parameters as
-- in enqueue_now, and $10 when it is due, or null and $11 how long from now, in ms.
INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, due_at)
SELECT $2, $3, $4, $5::jsonb, $6, $7, $8::jsonb, $9,
       coalesce($10::timestamptz, clock_timestamp() + $11::bigint * interval '1 ms')
FROM tenure.pool
WHERE number = $1
  AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $2 AND t.state = 'moved')
RETURNING id, false AS duplicate;
