-- The users who were given the ledger to work on: who may insert into tenure.job without
-- owning it.
SELECT DISTINCT r.rolname
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid = 'tenure.job'::regclass AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
ORDER BY 1;
