-- Closes the connections that a session has opened by dblink, those with a name and the one
-- without. Where dblink is may differ from one database to the next, and from one call to the next.
CREATE OR REPLACE FUNCTION tenure.close_dblink() RETURNS void
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
