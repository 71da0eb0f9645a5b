-- Puts jobs among the timers: retries after their back-off, snoozed jobs after
-- their delay. $1 ids, $2 turns, $3 delays in ms, $4 whether an attempt is charged,
-- $5 errors, $6 stacks, $7 the node, $8 how long the runs took, in µs.
WITH said AS (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $8::bigint[])
        AS s (id, turn, delay_ms, charged, error, stack, took_us)),
gone AS (
    DELETE FROM tenure.job j USING said
    WHERE j.id = said.id AND j.turn = said.turn
    RETURNING j.*, said.delay_ms, said.charged, said.error, said.stack, said.took_us),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error, stack, began)
    SELECT id, attempt + 1, $7, error, nullif(stack, ''), clock_timestamp() - took_us * interval '1 microsecond' FROM gone WHERE charged)
INSERT INTO tenure.timer_job (id, created_at, turn, timeout_ms, priority, attempt, max_attempts, losses,
    tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, due_at)
SELECT id, created_at, turn + 1, timeout_ms, priority, attempt + charged::int, max_attempts, losses,
    tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id,
    clock_timestamp() + delay_ms * interval '1 ms'
FROM gone;
