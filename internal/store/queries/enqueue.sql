-- Adds one job as the function of the ledger named $1 does, enqueue or one of its kin, but without the time which
-- that takes; refused says why not, and answer in which queue it waits. One row always comes back, and nothing but the ledger's own code is looked up
-- by a path: the caller's may be a tenant's. A cast stands where the column does not say it: each costs a look-up.
-- $2 pool number, $3 tenant, $4 queue, or null: its kind's, $5 kind, or the topic of external workers, $6 payload, $7 priority, $8
-- max_attempts, $9 meta, with the tags in it, $10 correlation id, $11 when it is due, or null and $12 how long from
-- now, $13 the unique key, $14 whether the transaction may write the tenant's own data, too, $15 the exclusive key,
-- $16 its timeout, $17 for how long the unique key is taken, or null: until the job ends.
-- Of links: $18 the ids of jobs that it is to start after, as an array's text, $19 what becomes of it when one of
-- them fails, $20 whether it is the completion job of a batch, $21 the batch that it is added to, or null.
INSERT INTO tenure.door AS d (call, pool, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id,
    run_at, delay, unique_key, with_data, exclusive_key, timeout, unique_for, after_jobs, on_failure, as_batch, in_batch)
VALUES ($1, $2, $3, $4, $5, $6::pg_catalog.jsonb, $7, $8, $9::pg_catalog.jsonb, $10, $11::pg_catalog.timestamptz, $12::pg_catalog.interval,
    $13, $14, $15, $16::pg_catalog.interval, $17::pg_catalog.interval, $18::pg_catalog.text::pg_catalog.int8[], $19, $20, $21)
RETURNING d.id, d.duplicate, d.refused, d.other_pool, d.answer;
