-- As write_reports in a handler's transaction, which must not fail by it nor wait for long: what cannot
-- be written is left out, and the server's log says why.
CREATE OR REPLACE FUNCTION tenure.write_reports_in_tx(reports text, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    PERFORM tenure.write_reports(reports::jsonb, node);
EXCEPTION WHEN OTHERS THEN -- but not a cancellation
    RAISE LOG 'what runs of jobs said could not be written: %', SQLERRM;
END
$$;
