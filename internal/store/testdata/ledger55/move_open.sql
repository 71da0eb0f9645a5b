-- Lets an arrived tenant's jobs run; no row: another mover goes on with it.
-- $1 tenant, $2 the mover.
UPDATE tenure.tenant SET state = 'active', other_pool = NULL
WHERE tenant_id = $1 AND state = 'arriving' AND mover = $2
RETURNING tenant_id;
