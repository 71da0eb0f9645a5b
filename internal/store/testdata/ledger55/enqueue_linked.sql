-- Adds one job that is linked to others, as enqueue.sql does, whose arguments are the first 16. $17 the
-- ids of jobs that it is to start after, as an array's text, $18 what becomes of it when one of them
-- fails, $19 whether it is the completion job of a batch, $20 the batch that it is added to, or null.
INSERT INTO tenure.door AS d (call, pool, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id,
    run_at, delay, unique_key, with_data, exclusive_key, timeout, unique_for, after_jobs, on_failure, as_batch, in_batch)
VALUES ('enqueue_linked', $1::pg_catalog.int4, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.jsonb,
    $6::pg_catalog.int4, $7::pg_catalog.int4, $8::pg_catalog.jsonb, $9::pg_catalog.text,
    $10::pg_catalog.timestamptz, $11::pg_catalog.interval, $12::pg_catalog.text, $13::pg_catalog.bool, $14::pg_catalog.text,
    $15::pg_catalog.interval, $16::pg_catalog.interval, $17::pg_catalog.text::pg_catalog.int8[],
    $18::pg_catalog.text, $19::pg_catalog.bool, $20::pg_catalog.int8)
RETURNING d.id, d.duplicate, d.refused, d.other_pool;
