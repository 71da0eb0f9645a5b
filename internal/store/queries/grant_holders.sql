-- The users who were given the ledger to work on: who, without owning it, may already take
-- its lock and end jobs. Somebody who may only add jobs is none of them.
SELECT r.rolname
FROM pg_roles r
WHERE EXISTS (SELECT FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
              WHERE c.oid = 'tenure.acquire_lock'::regclass AND a.grantee = r.oid AND a.privilege_type = 'UPDATE' AND r.oid <> c.relowner)
  AND EXISTS (SELECT FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
              WHERE c.oid = 'tenure.job'::regclass AND a.grantee = r.oid AND a.privilege_type = 'DELETE')
ORDER BY 1;
