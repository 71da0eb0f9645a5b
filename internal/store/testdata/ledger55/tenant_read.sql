-- Where a tenant stands in this pool; no row: it is active. $1 tenant.
SELECT tenant_id, state, coalesce(other_pool, '') AS other_pool, frozen, held AND state = 'moving' AS held
FROM tenure.tenant WHERE tenant_id = $1;
