-- The tenants whose jobs have finished here, as far as that was noted, and those that have a row, as those have that
-- were frozen or moved, or have a weight. $1 the most to list.
SELECT tenant_id FROM tenure.seen_tenant WHERE tenant_id <> ''
UNION SELECT tenant_id FROM tenure.tenant
LIMIT $1;
