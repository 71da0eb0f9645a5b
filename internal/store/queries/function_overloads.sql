-- Drops what the functions that this transaction has made were before with other arguments: a call would fit both. Who
-- was allowed to execute the old one, and nobody else, may execute the new one.
DO $$
DECLARE
    pair record;
    may  record;
    old  text := '';
BEGIN
    FOR pair IN
        SELECT o.oid::regprocedure AS old, n.oid::regprocedure AS new, coalesce(o.proacl, acldefault('f', o.proowner)) AS rights
        FROM pg_proc o JOIN pg_proc n USING (pronamespace, proname)
        WHERE o.pronamespace = 'tenure'::regnamespace AND n.xmin = pg_current_xact_id()::xid AND o.xmin <> n.xmin LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', pair.new);
        FOR may IN SELECT * FROM aclexplode(pair.rights) LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s%s', pair.new,
                CASE WHEN may.grantee = 0 THEN 'PUBLIC' ELSE may.grantee::regrole::text END, CASE WHEN may.is_grantable THEN ' WITH GRANT OPTION' END);
        END LOOP;
        old := concat_ws(', ', nullif(old, ''), pair.old);
    END LOOP;
    IF old <> '' THEN
        EXECUTE 'DROP FUNCTION ' || old;
    END IF;
END
$$;
