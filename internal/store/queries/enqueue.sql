-- Adds one job; refused says why not. One row always comes back, and nothing but the
-- function's own code is looked up by a path: the caller's may be a tenant's.
-- $1 pool number, $2 tenant, $3 queue, $4 kind, $5 payload, $6 priority, $7 max_attempts,
-- $8 meta, with the tags in it, $9 correlation id, $10 when it is due, or null and $11 how long from now, $12
-- the unique key, $13 whether the transaction may write the tenant's own data, too, $14 the
-- exclusive key, $15 its timeout, $16 for how long the unique key is taken, or null: until the job ends.
SELECT e.id, e.duplicate, e.refused, e.other_pool
FROM tenure.enqueue(pool => $1::pg_catalog.int4, tenant => $2::pg_catalog.text, queue => $3::pg_catalog.text,
    kind => $4::pg_catalog.text, payload => $5::pg_catalog.jsonb, priority => $6::pg_catalog.int4,
    max_attempts => $7::pg_catalog.int4, meta => $8::pg_catalog.jsonb, correlation_id => $9::pg_catalog.text,
    run_at => $10::pg_catalog.timestamptz, delay => $11::pg_catalog.interval, unique_key => $12::pg_catalog.text,
    with_data => $13::pg_catalog.bool, exclusive_key => $14::pg_catalog.text, timeout => $15::pg_catalog.interval,
    unique_for => $16::pg_catalog.interval) e;
