-- Adds one job for external workers, as enqueue does for nodes: $4 is their topic.
SELECT e.id, e.duplicate, e.refused, e.other_pool
FROM tenure.enqueue_external(pool => $1::pg_catalog.int4, tenant => $2::pg_catalog.text, queue => $3::pg_catalog.text,
    topic => $4::pg_catalog.text, payload => $5::pg_catalog.jsonb, priority => $6::pg_catalog.int4,
    max_attempts => $7::pg_catalog.int4, meta => $8::pg_catalog.jsonb, correlation_id => $9::pg_catalog.text,
    run_at => $10::pg_catalog.timestamptz, delay => $11::pg_catalog.interval, unique_key => $12::pg_catalog.text,
    with_data => $13::pg_catalog.bool) e;
