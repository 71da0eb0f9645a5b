-- Refuses, with TN005, to go on in another database than expected, or on another server, as
-- behind a pooler each transaction may find another one: a server is told from others by when it
-- started, which everybody may ask.
CREATE OR REPLACE FUNCTION tenure.require_database(expected text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    found pg_catalog.text := pg_catalog.concat(pg_catalog.extract('epoch', pg_catalog.pg_postmaster_start_time()), '/', pg_catalog.current_database());
BEGIN
    IF found OPERATOR(pg_catalog.<>) expected THEN
        RAISE EXCEPTION 'the pooler has led this transaction to another server or database than before'
            USING ERRCODE = 'TN005';
    END IF;
END
$$;
