-- What tenants' transactions need that lead through a pooler, such as PgBouncer in transaction
-- mode. Two new functions: locks nothing. Programs of before go on working.

-- +goose Up

-- Refuses, with TN005, to go on in another database than expected, or on another server, as
-- behind a pooler each transaction may find another one: a server is told from others by when it
-- started, which everybody may ask.
-- +goose StatementBegin
CREATE FUNCTION tenure.require_database(expected text) RETURNS void
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
-- +goose StatementEnd

-- Closes the connections that a session has opened by dblink, those with a name and the one
-- without. Where dblink is may differ from one database to the next, and from one call to the next.
-- +goose StatementBegin
CREATE FUNCTION tenure.close_dblink() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    home text := (SELECT e.extnamespace::regnamespace FROM pg_extension e WHERE e.extname = 'dblink');
BEGIN
    IF home IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT count(%1$s.dblink_disconnect(name)) FROM unnest(%1$s.dblink_get_connections()) AS name', home);
    BEGIN
        EXECUTE format('SELECT %s.dblink_disconnect()', home);
    EXCEPTION WHEN connection_does_not_exist THEN
        NULL; -- there is none without a name
    END;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION tenure.close_dblink();
DROP FUNCTION tenure.require_database(text);
