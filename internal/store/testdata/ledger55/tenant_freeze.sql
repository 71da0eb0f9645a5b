-- Freezes a tenant, behind removal_lock, or thaws it; no row: it is being moved.
-- $1 tenant, $2 frozen.
INSERT INTO tenure.tenant AS t (tenant_id, frozen) VALUES ($1, $2)
ON CONFLICT (tenant_id) DO UPDATE SET frozen = $2 WHERE t.state = 'active'
RETURNING t.tenant_id;
