-- Finishes one job inside its handler's transaction, or ends that transaction with
-- SQLSTATE TN001 when the claim was lost. $1 id, $2 turn, $3 whether to keep it.
WITH gone AS (
    DELETE FROM tenure.job WHERE id = $1 AND turn = $2
    RETURNING *),
kept AS (
    INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
        tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
    SELECT id, created_at, clock_timestamp(), turn, priority, attempt + 1, losses,
        tenant_id, queue, kind, 'done', payload, meta, unique_key, correlation_id
    FROM gone WHERE $3),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id)
SELECT tenure.require_claim(count(*)) FROM gone;
