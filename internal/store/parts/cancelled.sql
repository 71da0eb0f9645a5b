-- Ends the jobs of "gone", which a CTE before this one has removed: keep says whether the finished job is kept,
-- started_at and node where it ran, if it did,
-- external, true or null, whether it is for workers outside the cluster.
ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM gone), -- whole rows are copied for USING
freed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
heard AS (
    DELETE FROM tenure.cancel_request r USING ended WHERE r.job_id = ended.id),
kept AS (
    INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node, external)
    SELECT {{job legible}}, now(), 'cancelled', started_at, node, external FROM gone WHERE keep)
