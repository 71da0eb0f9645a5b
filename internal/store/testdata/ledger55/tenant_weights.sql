-- The tenants whose share of the others' turns is not that of a tenant of which nothing was said.
SELECT tenant_id, weight FROM tenure.tenant WHERE weight <> 1;
