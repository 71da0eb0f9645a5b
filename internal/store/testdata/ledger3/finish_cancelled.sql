-- Ends jobs on purpose. $1 ids, $2 turns, $3 whether to keep them.
WITH said AS (
    SELECT * FROM unnest($1::bigint[], $2::integer[]) AS s (id, turn)),
gone AS (
    DELETE FROM tenure.job j USING said
    WHERE j.id = said.id AND j.turn = said.turn
    RETURNING j.*),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id),
heard AS (
    DELETE FROM tenure.cancel_request r USING gone WHERE r.job_id = gone.id)
INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
    tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
SELECT id, created_at, now(), turn, priority, attempt + 1, losses,
    tenant_id, queue, kind, 'cancelled', payload, meta, unique_key, correlation_id
FROM gone WHERE $3;
