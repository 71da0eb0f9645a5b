-- Ends those of some runs that somebody wanted cancelled, though they ended otherwise:
-- their jobs would run again. To be run before what would let them, in the same
-- transaction. A request that is made in this very moment is found when the job is about
-- to be claimed again. $1 ids, $2 turns, $3 whether to keep them.
WITH gone AS (
    DELETE FROM tenure.job j
    USING unnest($1::bigint[], $2::integer[]) AS said (id, turn), tenure.cancel_request r
    WHERE j.id = said.id AND j.turn = said.turn AND r.job_id = j.id
    RETURNING j.*),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id),
heard AS (
    DELETE FROM tenure.cancel_request r USING gone WHERE r.job_id = gone.id),
kept AS (
    INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
        tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
    SELECT id, created_at, now(), turn, priority, attempt + 1, losses,
        tenant_id, queue, kind, 'cancelled', payload, meta, unique_key, correlation_id
    FROM gone WHERE $3)
SELECT id FROM gone;
