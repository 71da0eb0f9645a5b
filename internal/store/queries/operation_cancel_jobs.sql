-- Cancels jobs, as tenure.cancel does; those that wait or run, which get a request only, all at once. Those of a tenant that is
-- between two pools, for which that fails, stay. $1 ids, $2 whether to keep cancelled jobs. How many there were to cancel.
WITH elsewhere AS MATERIALIZED (SELECT tenant_id FROM tenure.tenant WHERE state IN ('moved', 'arriving')),
staying AS MATERIALIZED (
    SELECT id FROM tenure.timer_job WHERE id = ANY ($1::bigint[]) AND tenant_id IN (SELECT tenant_id FROM elsewhere)
    UNION ALL SELECT id FROM tenure.suspended_job WHERE id = ANY ($1) AND tenant_id IN (SELECT tenant_id FROM elsewhere)
    UNION ALL SELECT id FROM tenure.external_job WHERE id = ANY ($1) AND tenant_id IN (SELECT tenant_id FROM elsewhere)),
here AS MATERIALIZED (SELECT id, tenant_id IN (SELECT tenant_id FROM elsewhere) AS stays FROM tenure.job WHERE id = ANY ($1)),
asked AS (
    INSERT INTO tenure.cancel_request (job_id) SELECT id FROM here WHERE NOT stays
    ON CONFLICT DO NOTHING)
SELECT (SELECT count(*) FROM here WHERE NOT stays) +
       (SELECT count(tenure.cancel(j.id, $2::boolean)) FROM unnest($1) AS j (id)
        WHERE j.id NOT IN (SELECT id FROM here) AND j.id NOT IN (SELECT id FROM staying));
