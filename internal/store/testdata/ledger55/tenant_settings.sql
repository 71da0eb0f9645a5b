-- Where a tenant stands in this pool, and what was set for it; no row: it is active, and nothing was. $1 tenant.
SELECT state, coalesce(other_pool, ''), frozen, held AND state = 'moving', weight, coalesce(max_running, 0), coalesce(max_waiting, 0)
FROM tenure.tenant WHERE tenant_id = $1;
