-- What keeps no database from being a pool, but will hurt somebody. $1 schemas and
-- $2 roles that tenants are to have.
SELECT current_setting('server_version_num')::integer AS version,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes,
       ARRAY(SELECT name FROM unnest($1::text[]) AS wanted (name)
             WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = name)) AS no_schema,
       ARRAY(SELECT DISTINCT name FROM unnest($2::text[]) AS wanted (name)
             WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name AND pg_has_role(oid, 'MEMBER'))) AS no_role;
