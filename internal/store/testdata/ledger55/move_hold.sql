-- Keeps a tenant's transactions from beginning in the pool that it is to leave, while its
-- data is copied, or lets them again. No row: another mover goes on with it.
-- $1 tenant, $2 the mover, $3 held.
UPDATE tenure.tenant SET held = $3 WHERE tenant_id = $1 AND state = 'moving' AND mover = $2
RETURNING tenant_id;
