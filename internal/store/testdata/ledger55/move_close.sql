-- Closes a pool for a tenant whose jobs are not claimed any more: anyone who enqueues is
-- sent on, and its limits, which were given to the other pool, are forgotten. No row: another mover goes
-- on with it. $1 tenant, $2 where to, $3 the mover.
WITH closed AS (
    UPDATE tenure.tenant SET state = 'moved', held = false
    WHERE tenant_id = $1 AND state IN ('moving', 'moved') AND other_pool = $2 AND mover = $3
    RETURNING tenant_id),
limits AS (
    DELETE FROM tenure.job_limit l USING closed WHERE l.tenant_id = closed.tenant_id)
SELECT tenant_id FROM closed;
