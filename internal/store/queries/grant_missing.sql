-- The statements that give the user $1, or with null the one who asks, what nodes and
-- clients need of the ledger and the user has not; none when there is no ledger. Asking
-- needs no right. Finished jobs' days are reached through the table they are part of, and
-- the sequence of an identity column through its table.
WITH grantee AS (SELECT oid, rolname FROM pg_roles WHERE rolname = coalesce($1::text, current_user)),
ledger AS (SELECT oid FROM pg_namespace WHERE nspname = 'tenure'),
wanted (part, kind, object, privilege, n, granted) AS (
    SELECT 1, 'SCHEMA ', 'tenure', 'USAGE', 1, has_schema_privilege(g.oid, l.oid, 'USAGE')
    FROM grantee g, ledger l
    UNION ALL
    SELECT 2, '', format('tenure.%I', c.relname), p.name, p.n, has_table_privilege(g.oid, c.oid, p.name)
    FROM grantee g, ledger l JOIN pg_class c ON c.relnamespace = l.oid,
         unnest(CASE WHEN c.relname IN ('pool', 'migration') THEN '{SELECT}'::text[] ELSE '{SELECT,INSERT,UPDATE,DELETE}' END)
             WITH ORDINALITY AS p (name, n)
    WHERE c.relkind IN ('r', 'p') AND (NOT c.relispartition OR c.relname = 'completed_job_rest')
    UNION ALL
    SELECT 3, 'SEQUENCE ', format('tenure.%I', c.relname), p.name, p.n, has_sequence_privilege(g.oid, c.oid, p.name)
    FROM grantee g, ledger l JOIN pg_class c ON c.relnamespace = l.oid,
         unnest('{USAGE,SELECT,UPDATE}'::text[]) WITH ORDINALITY AS p (name, n)
    WHERE c.relkind = 'S'
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i')
    UNION ALL
    SELECT 4, 'FUNCTION ', format('tenure.%I(%s)', f.proname, pg_get_function_identity_arguments(f.oid)), 'EXECUTE', 1,
           has_function_privilege(g.oid, f.oid, 'EXECUTE')
    FROM grantee g, ledger l JOIN pg_proc f ON f.pronamespace = l.oid),
missing AS (
    SELECT part, kind, object, string_agg(privilege, ', ' ORDER BY n) AS privileges
    FROM wanted WHERE NOT granted GROUP BY part, kind, object)
SELECT format('GRANT %s ON %s%s TO %I', m.privileges, m.kind, string_agg(m.object, ', ' ORDER BY m.object), g.rolname)
FROM missing m, grantee g
GROUP BY m.part, m.kind, m.privileges, g.rolname
ORDER BY m.part, m.privileges;
