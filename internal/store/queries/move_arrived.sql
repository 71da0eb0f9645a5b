-- The finished jobs of the last batch that arrived. $1 tenant.
SELECT arrived FROM tenure.tenant WHERE tenant_id = $1;
