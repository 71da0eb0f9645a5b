-- Closes a pool for a tenant whose jobs are not claimed any more: whoever enqueues is
-- sent on. No row: another mover goes on with it. $1 tenant, $2 where to, $3 the mover.
UPDATE tenure.tenant SET state = 'moved'
WHERE tenant_id = $1 AND state IN ('moving', 'moved') AND other_pool = $2 AND mover = $3
RETURNING tenant_id;
