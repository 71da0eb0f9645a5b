-- The first of some tenants that has left this pool, and where to. $1 tenants.
SELECT tenant_id, other_pool FROM tenure.tenant
WHERE tenant_id = ANY ($1::text[]) AND state = 'moved'
LIMIT 1;
