-- Ends those of some runs that somebody wanted cancelled, though they ended otherwise:
-- their jobs would run again. To be run before what would let them, in the same
-- transaction. A request that is made in this very moment is found when the job is about
-- to be claimed again. $1 ids, $2 turns, $3 whether to keep them,
-- $4 how long each run took, in µs, $5 the node.
WITH gone AS (
    DELETE FROM tenure.job j
    USING unnest($1::bigint[], $2::integer[], $4::bigint[]) AS said (id, turn, took_us), tenure.cancel_request r
    WHERE j.id = said.id AND j.turn = said.turn AND r.job_id = j.id
    RETURNING j.*, said.took_us),
ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM gone), -- whole rows are copied for USING
freed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
heard AS (
    DELETE FROM tenure.cancel_request r USING ended WHERE r.job_id = ended.id),
kept AS (
    INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
        tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
    SELECT id, created_at, now(), turn, priority, attempt + 1, losses,
        tenant_id, queue, kind, 'cancelled', tenure.legible(payload), tenure.legible(meta), unique_key, correlation_id, now() - took_us * interval '1 microsecond', $5
    FROM gone WHERE $3)
SELECT id FROM gone;
