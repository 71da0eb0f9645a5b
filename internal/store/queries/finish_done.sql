-- Finishes jobs of one turn and keeps them for the retention time. A job whose
-- claim was reaped has another turn and is left alone. $1 ids, $2 turn, $3 how long their
-- runs took, in µs, $4 the node.
WITH gone AS (
    DELETE FROM tenure.job WHERE id = ANY($1::bigint[]) AND turn = $2
    RETURNING *)
INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node)
SELECT {{job | attempt = attempt + 1}}, now(), 'done', now() - $3::bigint * interval '1 microsecond', $4
FROM gone;
