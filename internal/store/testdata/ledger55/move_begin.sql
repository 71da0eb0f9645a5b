-- Begins a move, behind removal_lock, or goes on with it: from here on no job of the
-- tenant is claimed in this pool. One that is held stays so. No row: it is not here, or goes elsewhere.
-- $1 tenant, $2 the pool it goes to, $3 the mover.
INSERT INTO tenure.tenant AS t (tenant_id, state, other_pool, mover) VALUES ($1, 'moving', $2, $3)
ON CONFLICT (tenant_id) DO UPDATE SET state = 'moving', other_pool = $2, mover = $3, held = t.held AND t.state = 'moving'
WHERE t.state = 'active' OR t.state = 'moving' AND t.other_pool = $2
RETURNING t.frozen;
