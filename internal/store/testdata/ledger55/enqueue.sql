-- Adds one job, as tenure.enqueue does, but without the time which that function takes; refused says why
-- not. One row always comes back, and nothing but the ledger's own code is looked up by a path: the
-- caller's may be a tenant's.
-- $1 pool number, $2 tenant, $3 queue, $4 kind, $5 payload, $6 priority, $7 max_attempts,
-- $8 meta, with the tags in it, $9 correlation id, $10 when it is due, or null and $11 how long from now, $12
-- the unique key, $13 whether the transaction may write the tenant's own data, too, $14 the
-- exclusive key, $15 its timeout, $16 for how long the unique key is taken, or null: until the job ends.
INSERT INTO tenure.door AS d (call, pool, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id,
    run_at, delay, unique_key, with_data, exclusive_key, timeout, unique_for)
VALUES ('enqueue', $1::pg_catalog.int4, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.jsonb,
    $6::pg_catalog.int4, $7::pg_catalog.int4, $8::pg_catalog.jsonb, $9::pg_catalog.text,
    $10::pg_catalog.timestamptz, $11::pg_catalog.interval, $12::pg_catalog.text, $13::pg_catalog.bool, $14::pg_catalog.text,
    $15::pg_catalog.interval, $16::pg_catalog.interval)
RETURNING d.id, d.duplicate, d.refused, d.other_pool;
