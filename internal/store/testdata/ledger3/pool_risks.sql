-- What keeps no database from being a pool, but will hurt somebody. $1 schemas and, in
-- the same order, $2 roles that tenants are to have; '': the pool's own user.
WITH wanted AS (SELECT schema, role FROM unnest($1::text[], $2::text[]) AS w (schema, role))
SELECT current_setting('server_version_num')::integer AS version,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes,
       (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS mighty,
       ARRAY(SELECT DISTINCT schema FROM wanted
             WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = schema)) AS no_schema,
       ARRAY(SELECT DISTINCT role FROM wanted
             WHERE role <> '' AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role AND pg_has_role(oid, 'MEMBER'))) AS no_role,
       ARRAY(SELECT DISTINCT role FROM wanted
             JOIN pg_roles ON rolname = role AND (rolsuper OR rolbypassrls)) AS mighty_roles,
       ARRAY(SELECT DISTINCT role || ' in ' || schema FROM wanted
             JOIN pg_roles r ON rolname = role JOIN pg_namespace n ON nspname = schema
             WHERE NOT has_schema_privilege(r.oid, n.oid, 'USAGE')) AS no_usage;
