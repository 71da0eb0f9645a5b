-- What a new job has from who adds it: columns of the tables, and of the door but for three.
id, timeout_ms, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key
