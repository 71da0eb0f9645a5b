-- The columns that many jobs are copied into: see enqueue.go.
INSERT INTO tenure.job (tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, turn)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);
