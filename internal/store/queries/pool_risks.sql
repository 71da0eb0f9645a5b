-- What keeps no database from being a pool, but will hurt somebody. $1 schemas and, in
-- the same order, $2 roles that tenants are to have; '': the pool's own user. Where
-- statements would mend it, they come along. Since Postgres 16 a member may be kept
-- from taking the role.
WITH wanted AS (
    SELECT schema, role, coalesce(nullif(role, ''), current_user) AS who, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END AS taking
    FROM unnest($1::text[], $2::text[]) AS w (schema, role))
SELECT current_setting('server_version_num')::integer AS version,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes,
       (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS mighty,
       ARRAY(SELECT DISTINCT schema FROM wanted
             WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = schema)) AS no_schema,
       ARRAY(SELECT DISTINCT format('CREATE SCHEMA %I', schema) || CASE WHEN role <> '' THEN format(' AUTHORIZATION %I', role) ELSE '' END FROM wanted
             WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = schema)) AS make_schemas,
       ARRAY(SELECT DISTINCT role FROM wanted
             WHERE role <> '' AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role AND pg_has_role(oid, taking))) AS no_role,
       ARRAY(SELECT DISTINCT CASE WHEN r.oid IS NULL THEN format('CREATE ROLE %I; ', role) ELSE '' END || format('GRANT %I TO %I', role, current_user)
             FROM wanted LEFT JOIN pg_roles r ON rolname = role
             WHERE role <> '' AND (r.oid IS NULL OR NOT pg_has_role(r.oid, taking))) AS make_roles,
       ARRAY(SELECT DISTINCT role FROM wanted
             JOIN pg_roles ON rolname = role AND (rolsuper OR rolbypassrls)) AS mighty_roles,
       ARRAY(SELECT DISTINCT who || ' in ' || schema FROM wanted
             JOIN pg_roles r ON rolname = who JOIN pg_namespace n ON nspname = schema
             WHERE NOT has_schema_privilege(r.oid, n.oid, 'USAGE')) AS no_usage,
       ARRAY(SELECT DISTINCT format('GRANT USAGE ON SCHEMA %I TO %I', schema, who) FROM wanted
             JOIN pg_roles r ON rolname = who JOIN pg_namespace n ON nspname = schema
             WHERE NOT has_schema_privilege(r.oid, n.oid, 'USAGE')) AS usage_grants,
       ARRAY(SELECT DISTINCT statement FROM wanted JOIN pg_roles r ON rolname = role JOIN pg_namespace n ON nspname = 'tenure'
             JOIN pg_proc f ON f.pronamespace = n.oid AND f.proname = 'enqueue',
             LATERAL (VALUES (has_schema_privilege(r.oid, n.oid, 'USAGE'), format('GRANT USAGE ON SCHEMA tenure TO %I', role)),
                             (has_function_privilege(r.oid, f.oid, 'EXECUTE'), format('GRANT EXECUTE ON FUNCTION tenure.enqueue TO %I', role)))
                 AS needed (granted, statement)
             WHERE NOT granted) AS enqueue_grants;
