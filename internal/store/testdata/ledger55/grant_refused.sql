-- The tenant's roles that are the user $1, or its members, who would have what it is given. Superusers
-- have it anyway.
SELECT r.rolname, tenure.tenant_of_role(r.rolname) AS tenant
FROM pg_roles u, pg_roles r
WHERE u.rolname = $1 AND (r.oid = u.oid OR NOT r.rolsuper AND pg_has_role(r.oid, u.oid, 'MEMBER'))
  AND tenure.tenant_of_role(r.rolname) IS NOT NULL
ORDER BY r.oid <> u.oid, r.rolname LIMIT 1;
