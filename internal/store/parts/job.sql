-- What a job is wherever it stands unfinished or dead: each statement that moves jobs moves these columns.
id, created_at, turn, timeout_ms, priority, attempt, max_attempts, losses,
tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id
