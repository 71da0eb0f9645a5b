-- Sets a tenant's share of the others' turns; no row: it is being moved. $1 tenant, $2 weight.
INSERT INTO tenure.tenant AS t (tenant_id, weight) VALUES ($1, $2)
ON CONFLICT (tenant_id) DO UPDATE SET weight = $2 WHERE t.state = 'active'
RETURNING t.tenant_id;
