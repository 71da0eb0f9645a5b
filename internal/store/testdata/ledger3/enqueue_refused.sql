-- Why an enqueue was refused: where the tenant stands in the pool numbered $1. No row:
-- this database is not that pool. $2 tenant.
SELECT coalesce(t.state, 'active') AS state, coalesce(t.other_pool, '') AS other_pool
FROM tenure.pool p LEFT JOIN tenure.tenant t ON t.tenant_id = $2
WHERE p.number = $1;
