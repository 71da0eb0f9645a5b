-- Cancels a job of external workers, also one that is locked: its worker finds its lock lost. $1 id,
-- $2 whether to keep it among the finished ones. One of a tenant that is between two pools stays.
WITH gone AS (
    DELETE FROM tenure.external_job
    WHERE id = $1 AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING *, $2::boolean AS keep, NULL::timestamptz AS started_at, NULL::text AS node, true AS external),
{{cancelled}}
SELECT count(*) FROM gone;
