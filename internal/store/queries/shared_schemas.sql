-- What tenants have in common, schemas $1: those that there are not; those in which everybody may make something, which
-- then all tenants' statements may find; and the extensions whose types or operators none of them finds. A function that is not
-- found is an error, and says so; many extensions have none but for administrators.
SELECT ARRAY(SELECT s.name FROM unnest($1::text[]) AS s (name) WHERE NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = s.name)) AS missing,
       ARRAY(SELECT n.nspname::text FROM pg_namespace n WHERE n.nspname = ANY ($1::text[]) AND has_schema_privilege('public', n.oid, 'CREATE')) AS open,
       ARRAY(SELECT format('%s in %I', e.extname, n.nspname)
             FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
             WHERE n.nspname NOT IN ('pg_catalog', 'tenure') AND n.nspname <> ALL ($1::text[])
               AND EXISTS (SELECT FROM pg_depend d
                           WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e' AND d.classid IN ('pg_operator'::regclass, 'pg_type'::regclass))
             ORDER BY 1) AS unreached;
