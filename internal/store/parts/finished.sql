-- What is kept of a finished job, beside how, when and where it ended.
id, created_at, turn, priority, attempt, losses,
tenant_id, queue, kind, payload, meta, unique_key, correlation_id
