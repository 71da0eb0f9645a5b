-- Cancels a job of external workers, also one that is locked: its worker finds its lock lost. $1 id,
-- $2 whether to keep it among the finished ones. One of a tenant that is between two pools stays.
WITH gone AS (
    DELETE FROM tenure.external_job
    WHERE id = $1 AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING *),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id),
kept AS (
    INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
        tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
    SELECT id, created_at, now(), turn, priority, attempt, losses,
        tenant_id, queue, kind, 'cancelled', payload, meta, unique_key, correlation_id
    FROM gone WHERE $2)
SELECT count(*) FROM gone;
