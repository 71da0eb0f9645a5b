-- The statements that let the user $1 take roles that it cannot take yet; of $2, those that
-- exist. Since Postgres 16 it can be told that it does not have their rights all the time.
SELECT format('GRANT %I TO %I', r.rolname, g.rolname)
       || CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END
FROM pg_roles g, pg_roles r
WHERE g.rolname = $1 AND r.rolname = ANY ($2::text[])
  AND NOT pg_has_role(g.oid, r.oid, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
ORDER BY r.rolname;
