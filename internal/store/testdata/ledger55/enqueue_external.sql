-- Adds one job for external workers, as enqueue does for nodes: $4 is their topic.
INSERT INTO tenure.door AS d (call, pool, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id,
    run_at, delay, unique_key, with_data)
VALUES ('enqueue_external', $1::pg_catalog.int4, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.jsonb,
    $6::pg_catalog.int4, $7::pg_catalog.int4, $8::pg_catalog.jsonb, $9::pg_catalog.text,
    $10::pg_catalog.timestamptz, $11::pg_catalog.interval, $12::pg_catalog.text, $13::pg_catalog.bool)
RETURNING d.id, d.duplicate, d.refused, d.other_pool;
