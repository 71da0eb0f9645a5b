-- Makes a tenant's jobs wait in the pool they come to, behind removal_lock; no row: it
-- is about to leave that pool. $1 tenant, $2 where from or null, $3 the mover, $4 frozen.
INSERT INTO tenure.tenant AS t (tenant_id, state, other_pool, mover, frozen) VALUES ($1, 'arriving', $2, $3, $4)
ON CONFLICT (tenant_id) DO UPDATE
SET state = 'arriving', other_pool = $2, mover = $3, frozen = $4
WHERE t.state <> 'moving'
RETURNING t.tenant_id;
