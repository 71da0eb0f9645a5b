-- Ends jobs of external workers, well or with a business error, and keeps them for the retention
-- time. $1 ids, $2 turns, $3 workers, $4 outputs, JSON or null, $5 business errors, null: it ended
-- well, $6 whether to keep them. The ids of those whose lock was the caller's.
WITH gone AS (
    DELETE FROM tenure.external_job j
    USING unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[]) AS said (id, turn, worker, output, error)
    WHERE j.id = said.id AND j.turn = said.turn AND j.locked_by = said.worker
      AND j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING j.*, said.output, said.error),
freed AS (
    DELETE FROM tenure.unique_job u USING gone
    WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = gone.id),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error)
    SELECT id, attempt + 1, locked_by, error FROM gone WHERE error IS NOT NULL),
said AS (
    INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, output)
    SELECT id, turn, attempt + 1, locked_by, acquired_at, output::jsonb FROM gone WHERE output IS NOT NULL AND $6),
kept AS (
    INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node, external)
    SELECT {{job | attempt = attempt + 1}}, now(), CASE WHEN error IS NULL THEN 'done' ELSE 'business_error' END, acquired_at, locked_by, true
    FROM gone WHERE $6)
SELECT id FROM gone;
