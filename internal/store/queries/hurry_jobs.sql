-- Makes jobs that wait for their time due sooner. Those whose row somebody has locked stay, and so do those of a tenant that is between
-- two pools, when the other one may have them, too. $1 ids, in the order in which they are to be due, $2 ms until the first one is,
-- $3 ms between two. How many are due sooner, or were already, and how many stay.
WITH elsewhere AS MATERIALIZED (SELECT tenant_id FROM tenure.tenant WHERE state IN ('moved', 'arriving')),
chosen AS MATERIALIZED (
    SELECT id, clock_timestamp() + ($2::bigint + $3::double precision * (n - 1)) * interval '1 ms' AS at FROM unnest($1::bigint[]) WITH ORDINALITY AS c (id, n)),
timer AS MATERIALIZED (
    SELECT id FROM tenure.timer_job
    WHERE id = ANY ($1) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    FOR UPDATE SKIP LOCKED),
outside AS MATERIALIZED (
    SELECT id FROM tenure.external_job
    WHERE id = ANY ($1) AND due_at IS NOT NULL AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    FOR UPDATE SKIP LOCKED),
sooner AS (
    UPDATE tenure.timer_job j SET due_at = c.at FROM chosen c WHERE j.id = c.id AND j.id IN (SELECT id FROM timer) AND j.due_at > c.at),
sooner_outside AS (
    UPDATE tenure.external_job j SET due_at = c.at FROM chosen c WHERE j.id = c.id AND j.id IN (SELECT id FROM outside) AND j.due_at > c.at)
SELECT hurried, waiting - hurried
FROM (SELECT (SELECT count(*) FROM timer) + (SELECT count(*) FROM outside) AS hurried,
             (SELECT count(*) FROM tenure.timer_job WHERE id = ANY ($1)) + (SELECT count(*) FROM tenure.external_job WHERE id = ANY ($1) AND due_at IS NOT NULL) AS waiting) n;
