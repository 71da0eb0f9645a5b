-- The columns that many jobs are copied into: see enqueue.go.
INSERT INTO tenure.job (tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, turn, id, exclusive_key, timeout_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
