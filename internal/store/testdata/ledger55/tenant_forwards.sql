-- The tenants that are on their way, with the other pool of the move.
SELECT tenant_id, state, coalesce(other_pool, '') AS other_pool, frozen, held AND state = 'moving' AS held
FROM tenure.tenant WHERE state <> 'active';
