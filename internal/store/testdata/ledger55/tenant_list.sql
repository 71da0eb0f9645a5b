-- The tenants that have a row here, which those have that were frozen or moved.
SELECT tenant_id, state, coalesce(other_pool, '') AS other_pool, frozen, held AND state = 'moving' AS held
FROM tenure.tenant ORDER BY tenant_id;
