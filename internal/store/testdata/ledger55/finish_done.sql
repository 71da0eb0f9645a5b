-- Finishes jobs of one turn and keeps them for the retention time. A job whose
-- claim was reaped has another turn and is left alone. $1 ids, $2 turn, $3 how long their
-- runs took, in µs, $4 the node.
WITH gone AS (
    DELETE FROM tenure.job WHERE id = ANY($1::bigint[]) AND turn = $2
    RETURNING *)
INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
    tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
SELECT id, created_at, now(), turn, priority, attempt + 1, losses,
    tenant_id, queue, kind, 'done', payload, meta, unique_key, correlation_id, now() - $3::bigint * interval '1 microsecond', $4
FROM gone;
