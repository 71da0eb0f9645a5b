-- Drops what the functions that this transaction has made were before with other arguments: a call would fit both. Who
-- was allowed to execute the old one, and nobody else, may execute the new one.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        WITH pair AS MATERIALIZED (
            SELECT n.oid::regprocedure::text AS made, n.proowner AS owner, coalesce(n.proacl, acldefault('f', n.proowner)) AS has,
                   o.oid::regprocedure::text AS old, coalesce(o.proacl, acldefault('f', o.proowner)) AS had
            FROM pg_proc n JOIN pg_proc o USING (pronamespace, proname, prokind)
            WHERE n.pronamespace = 'tenure'::regnamespace AND n.prokind = 'f' AND n.xmin = pg_current_xact_id()::xid AND o.xmin <> n.xmin),
        statements (step, text) AS (
            SELECT 1, format('REVOKE EXECUTE ON FUNCTION %s FROM %s', made, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
            FROM pair, aclexplode(has) AS a WHERE a.grantee <> owner
            UNION
            SELECT 2, format('GRANT EXECUTE ON FUNCTION %s TO %s%s', made, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
                             CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
            FROM pair, aclexplode(had) AS a
            UNION
            SELECT 3, 'DROP FUNCTION ' || string_agg(DISTINCT old, ', ') FROM pair HAVING count(*) > 0)
        SELECT text FROM statements ORDER BY step LOOP
        EXECUTE statement;
    END LOOP;
END
$$;
