-- Sends jobs to the dead letters. $1 ids, $2 turns, $3 errors, $4 stacks, $5 the node, $6 how long
-- the runs took, in µs.
WITH said AS (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $6::bigint[])
        AS s (id, turn, error, stack, took_us)),
gone AS (
    DELETE FROM tenure.job j USING said
    WHERE j.id = said.id AND j.turn = said.turn
    RETURNING j.*, said.error, said.stack, said.took_us),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error, stack, began)
    SELECT id, attempt + 1, $5, error, nullif(stack, ''), clock_timestamp() - took_us * interval '1 microsecond' FROM gone),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id)
INSERT INTO tenure.dead_letter_job (id, created_at, turn, timeout_ms, priority, attempt, max_attempts, losses,
    tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, origin, error)
SELECT id, created_at, turn + 1, timeout_ms, priority, attempt + 1, max_attempts, losses,
    tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, 'job', error
FROM gone;
