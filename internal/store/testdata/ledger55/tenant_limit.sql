-- Sets how many jobs of a tenant may be in flight at a time; no row: it is being moved.
-- $1 tenant, $2 the most, or null for any number.
INSERT INTO tenure.tenant AS t (tenant_id, max_running) VALUES ($1, $2)
ON CONFLICT (tenant_id) DO UPDATE SET max_running = $2 WHERE t.state = 'active'
RETURNING t.tenant_id;
