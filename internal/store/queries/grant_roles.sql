-- The statements that let the user $1, NULL: the connection's own, take roles that it cannot take yet; of $2, those that exist. Since
-- Postgres 16 it can be told that it does not have their rights all the time. refusal: why nobody should take
-- that role for a tenant's sake, as it, or one that it can take in turn, has rights over more than a tenant's
-- own data.
SELECT r.rolname,
       format('GRANT %I TO %I', r.rolname, g.rolname)
       || CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END AS statement,
       coalesce(mighty.why, '') AS refusal
FROM pg_roles g, pg_roles r
LEFT JOIN LATERAL (
    SELECT CASE WHEN m.oid <> r.oid THEN format('can become %s, which ', m.rolname) ELSE '' END
           || CASE WHEN m.rolsuper THEN 'is a superuser'
                   WHEN m.rolcreaterole THEN 'may make and change roles (CREATEROLE)'
                   WHEN m.rolbypassrls THEN 'bypasses row-level security (BYPASSRLS)'
                   WHEN m.rolreplication THEN 'may copy the whole server (REPLICATION)'
                   WHEN m.rolname LIKE 'pg\_%' THEN 'has rights beyond any tenant''s data'
                   WHEN m.oid = g.oid THEN 'is the user that nodes connect as'
                   ELSE 'owns the ledger' END AS why
    FROM pg_roles m
    WHERE pg_has_role(r.oid, m.oid, 'MEMBER')
      AND (m.rolsuper OR m.rolcreaterole OR m.rolbypassrls OR m.rolreplication OR m.oid = g.oid
           OR m.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = to_regclass('tenure.pool'))
           OR m.rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files',
                            'pg_read_all_data', 'pg_write_all_data', 'pg_maintain', 'pg_signal_backend'))
    ORDER BY m.oid <> r.oid, m.rolname LIMIT 1) mighty ON true
WHERE g.rolname = coalesce($1, current_user) AND r.rolname = ANY ($2::text[])
  AND (r.oid = g.oid OR NOT pg_has_role(g.oid, r.oid, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END))
ORDER BY r.rolname;
