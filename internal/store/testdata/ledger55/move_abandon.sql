-- Gives a move up that has not begun to fill the other pool; no row: there is none.
-- $1 tenant.
UPDATE tenure.tenant SET state = 'active', other_pool = NULL, mover = NULL, held = false
WHERE tenant_id = $1 AND state = 'moving'
RETURNING tenant_id;
