-- Cancels a job of external workers, also one that is locked: its worker finds its lock lost. $1 id,
-- $2 whether to keep it among the finished ones. One of a tenant that is between two pools stays.
WITH gone AS (
    DELETE FROM tenure.external_job
    WHERE id = $1 AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING *),
ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM gone), -- whole rows are copied for USING
freed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
kept AS (
    INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
        tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
    SELECT id, created_at, now(), turn, priority, attempt, losses,
        tenant_id, queue, kind, 'cancelled', tenure.legible(payload), tenure.legible(meta), unique_key, correlation_id
    FROM gone WHERE $2)
SELECT count(*) FROM gone;
