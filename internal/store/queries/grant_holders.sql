-- Who has rights in the ledger's schema that nobody gave by naming him, with the statements that take them
-- away: beyond those of everybody, the owner's and superusers', and those that a process which only enqueues
-- has by the documents. A tenant's role has even less, also if it is a member of who was
-- named: tenant says whose role it is, '' of all. A user whom somebody named, or who asks, may be who nodes
-- run as: nothing is taken away from it, and if it is a tenant's role, too, it is listed without statements. Functions count that have the owner's rights and do not look
-- at who calls. Of views what everybody has of them does not count: what they show is his. What is given by default
-- on whatever the owner will make counts, too. After them those who were named and have lost their rights: by a restore without
-- grants, or because another user has the name now.
WITH RECURSIVE acl (grantee, kind, object, privilege, grantable, enqueues) AS (
    SELECT a.grantee, 'SCHEMA ', 'tenure', a.privilege_type, a.is_grantable, a.privilege_type = 'USAGE'
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a
    WHERE n.nspname = 'tenure' AND a.grantee <> n.nspowner AND a.privilege_type <> 'USAGE'
    UNION ALL
    SELECT a.grantee, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END, format('tenure.%I', c.relname), a.privilege_type, a.is_grantable,
           CASE a.privilege_type WHEN 'SELECT' THEN c.relname IN ('pool', 'migration', 'tenant', 'kind_queue')
                                 WHEN 'INSERT' THEN c.relname IN ('job', 'timer_job', 'awaited')
                                 WHEN 'USAGE' THEN c.relname IN ('job_id', 'job_position') ELSE false END
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
    WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p', 'S') AND a.grantee <> c.relowner
    UNION ALL
    SELECT a.grantee, '', format('tenure.%I', c.relname), a.privilege_type, a.is_grantable, false
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
    WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind = 'v' AND a.grantee <> c.relowner
      AND NOT (a.privilege_type = 'SELECT' AND c.relname = 'job_status')
    UNION ALL
    SELECT a.grantee, '', format('tenure.%I', c.relname), format('%s (%I)', a.privilege_type, t.attname), a.is_grantable,
           a.privilege_type = 'INSERT' AND c.relname = 'job' AND t.attname = 'tenant_id'
    FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN LATERAL aclexplode(t.attacl) a
    WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p') AND a.grantee <> c.relowner
    UNION ALL
    SELECT a.grantee, 'FUNCTION ', format('tenure.%I(%s)', f.proname, pg_get_function_identity_arguments(f.oid)), a.privilege_type, a.is_grantable, false
    FROM pg_proc f CROSS JOIN LATERAL aclexplode(f.proacl) a
    WHERE f.pronamespace = 'tenure'::regnamespace AND f.prosecdef AND a.grantee <> f.proowner
      AND f.proname NOT IN ('enqueue', 'enqueue_external', 'enqueue_linked', 'cancel', 'retry', 'seen_by', 'first_turn', 'incarnation', 'server_state')),
granted (member, roleid, first) AS ( -- by way of others, too: what is revoked is what stands first
    SELECT m.member, m.roleid, m.roleid AS first FROM pg_auth_members m
    UNION
    SELECT g.member, m.roleid, g.first FROM granted g JOIN pg_auth_members m ON m.member = g.roleid),
joined AS (
    SELECT DISTINCT g.member, f.rolname FROM granted g JOIN pg_roles u ON u.oid = g.roleid JOIN pg_roles f ON f.oid = g.first
    WHERE u.rolname IN ('pg_read_all_data', 'pg_write_all_data') OR u.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'tenure.pool'::regclass)
       OR EXISTS (SELECT FROM tenure.runtime_user n WHERE n.user_name = u.rolname)),
defaults AS (
    SELECT a.grantee, format('ALTER DEFAULT PRIVILEGES FOR ROLE %I%s REVOKE ALL ON %s FROM ', pg_get_userbyid(d.defaclrole), CASE WHEN n.oid IS NULL THEN '' ELSE ' IN SCHEMA tenure' END,
           CASE d.defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' ELSE 'FUNCTIONS' END) AS revoke
    FROM pg_default_acl d LEFT JOIN pg_namespace n ON n.oid = d.defaclnamespace CROSS JOIN LATERAL aclexplode(d.defaclacl) a
    WHERE d.defaclrole = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'tenure.pool'::regclass)
      AND coalesce(n.nspname, 'tenure') = 'tenure' AND d.defaclobjtype IN ('r', 'S', 'f') AND a.grantee <> d.defaclrole
      AND NOT (d.defaclobjtype = 'f' AND a.grantee = 0)),
holder AS MATERIALIZED (
    SELECT g.oid, coalesce(quote_ident(r.rolname), 'PUBLIC') AS name, r.rolname, tenure.tenant_of_role(r.rolname) AS tenant,
           EXISTS (SELECT FROM tenure.runtime_user u WHERE u.user_name = r.rolname) AS named,
           coalesce(EXISTS (SELECT FROM tenure.runtime_user u WHERE u.user_name = r.rolname) OR r.rolname = session_user, false) AS runs
    FROM (SELECT grantee AS oid FROM acl UNION SELECT member FROM joined UNION SELECT grantee FROM defaults) g
    LEFT JOIN pg_roles r ON r.oid = g.oid
    WHERE g.oid = 0 OR NOT r.rolsuper),
statement (oid, n, sql) AS (
    SELECT h.oid, 1, format('REVOKE %I FROM %I', j.rolname, h.rolname)
    FROM holder h JOIN joined j ON j.member = h.oid WHERE h.tenant IS NOT NULL AND NOT h.runs
    UNION ALL
    SELECT h.oid, 3, d.revoke || h.name
    FROM holder h JOIN defaults d ON d.grantee = h.oid WHERE NOT h.runs
    UNION ALL
    SELECT oid, 2, format('REVOKE %s ON %s%s FROM %s%s', privileges, kind, string_agg(object, ', ' ORDER BY object), name, CASE WHEN bool_or(grantable) THEN ' CASCADE' ELSE '' END)
    FROM (SELECT h.oid, h.name, a.kind, a.object, string_agg(DISTINCT a.privilege, ', ') AS privileges, bool_or(a.grantable) AS grantable
          FROM holder h JOIN acl a ON a.grantee = h.oid
          WHERE NOT h.runs AND (h.tenant IS NOT NULL OR h.oid = 0 OR NOT a.enqueues)
          GROUP BY h.oid, h.name, a.kind, a.object) on_object
    GROUP BY oid, name, kind, privileges)
SELECT coalesce(h.rolname, 'PUBLIC') AS name, h.tenant, coalesce(array_agg(s.sql ORDER BY s.n, s.sql) FILTER (WHERE s.sql IS NOT NULL), '{}') AS statements, false AS lost
FROM holder h LEFT JOIN statement s USING (oid)
WHERE s.sql IS NOT NULL OR h.runs AND (h.tenant IS NOT NULL OR NOT h.named)
GROUP BY h.oid, h.rolname, h.tenant
UNION ALL
SELECT u.user_name, NULL, '{}', true
FROM tenure.runtime_user u JOIN pg_roles r ON r.rolname = u.user_name
WHERE NOT has_table_privilege(r.oid, 'tenure.job', 'DELETE') AND tenure.tenant_of_role(u.user_name) IS NULL
ORDER BY lost, tenant NULLS LAST, name;
