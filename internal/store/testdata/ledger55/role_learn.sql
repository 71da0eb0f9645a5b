-- Records which roles tenants have. $1 tenants, '' for the pattern of those that are not
-- recorded, and in the same order $2 roles. In order, so that two who do it do not wait for
-- one another in a circle.
INSERT INTO tenure.tenant_role AS r (tenant_id, role_name)
SELECT w.tenant_id, w.role_name FROM unnest($1::text[], $2::text[]) AS w (tenant_id, role_name)
WHERE NOT EXISTS (SELECT FROM tenure.tenant_role k WHERE k.tenant_id = w.tenant_id AND k.role_name = w.role_name)
ORDER BY w.tenant_id COLLATE "C"
ON CONFLICT (tenant_id) DO UPDATE SET role_name = excluded.role_name WHERE r.role_name <> excluded.role_name;
