-- Ends jobs on purpose. $1 ids, $2 turns, $3 whether to keep them, $4 how long each run took,
-- in µs, $5 the node, $6 why, or '': nothing was said of that. A reason has the time at which the job ended, by
-- which it is told from what its runs have failed with.
WITH said AS (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $4::bigint[], $6::text[]) AS s (id, turn, took_us, reason)),
gone AS (
    DELETE FROM tenure.job j USING said
    WHERE j.id = said.id AND j.turn = said.turn
    RETURNING j.*, said.took_us, said.reason),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, at, node, error)
    SELECT id, attempt + 1, now(), $5, reason FROM gone WHERE $3 AND reason <> ''),
ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM gone), -- whole rows are copied for USING
freed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
heard AS (
    DELETE FROM tenure.cancel_request r USING ended WHERE r.job_id = ended.id)
INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
    tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
SELECT id, created_at, now(), turn, priority, attempt + 1, losses,
    tenant_id, queue, kind, 'cancelled', payload, meta, unique_key, correlation_id, now() - took_us * interval '1 microsecond', $5
FROM gone WHERE $3;
