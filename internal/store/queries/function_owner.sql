-- Gives functions that were made by somebody else than the ledger's owner, such as a superuser who migrates, to that one:
-- with his rights they are executed.
DO $$
DECLARE
    owner CONSTANT regrole := (SELECT p.proowner FROM pg_proc p WHERE p.oid = 'tenure.answer()'::regprocedure);
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'tenure'::regnamespace AND p.proowner <> owner AND p.proowner = current_user::regrole LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO %s', f, owner);
    END LOOP;
END
$$;
