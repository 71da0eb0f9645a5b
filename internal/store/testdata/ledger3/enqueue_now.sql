-- Adds one waiting job; no row: this database is not the pool numbered $1,
-- or the tenant has left it.
-- $1 pool number, $2 tenant, $3 queue, $4 kind, $5 payload, $6 priority,
-- $7 max_attempts, $8 meta, $9 correlation id.
INSERT INTO tenure.job (tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id)
SELECT $2, $3, $4, $5::jsonb, $6, $7, $8::jsonb, $9
FROM tenure.pool
WHERE number = $1
  AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $2 AND t.state = 'moved')
RETURNING id, false AS duplicate;
