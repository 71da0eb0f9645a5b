-- Forgets the last batch, as nothing of it can come again. $1 tenant, $2 the mover.
UPDATE tenure.tenant SET arrived = '{}' WHERE tenant_id = $1 AND mover = $2;
