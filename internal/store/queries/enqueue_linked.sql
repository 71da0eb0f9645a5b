-- Adds one job that is linked to others, as enqueue.sql does, whose arguments are the first 16. $17 the
-- ids of jobs that it is to start after, as an array's text, $18 what becomes of it when one of them
-- fails, $19 whether it is the completion job of a batch, $20 the batch that it is added to, or null.
SELECT e.id, e.duplicate, e.refused, e.other_pool
FROM tenure.enqueue_linked(pool => $1::pg_catalog.int4, tenant => $2::pg_catalog.text, queue => $3::pg_catalog.text,
    kind => $4::pg_catalog.text, payload => $5::pg_catalog.jsonb, priority => $6::pg_catalog.int4,
    max_attempts => $7::pg_catalog.int4, meta => $8::pg_catalog.jsonb, correlation_id => $9::pg_catalog.text,
    run_at => $10::pg_catalog.timestamptz, delay => $11::pg_catalog.interval, unique_key => $12::pg_catalog.text,
    with_data => $13::pg_catalog.bool, exclusive_key => $14::pg_catalog.text,
    timeout => $15::pg_catalog.interval, unique_for => $16::pg_catalog.interval, after_jobs => $17::pg_catalog.text::pg_catalog.int8[],
    on_failure => $18::pg_catalog.text, as_batch => $19::pg_catalog.bool, in_batch => $20::pg_catalog.int8) e;
