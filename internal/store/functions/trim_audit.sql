-- Removes what operators did longer ago than kept, which is a month at least: at most so many rows.
CREATE OR REPLACE FUNCTION tenure.trim_audit(kept interval, most integer) RETURNS integer
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH old AS (
    SELECT a.id FROM tenure.audit a WHERE a.at < clock_timestamp() - greatest(kept, interval '30 days')
    ORDER BY a.at, a.id LIMIT most),
removed AS (DELETE FROM tenure.audit a USING old WHERE a.id = old.id RETURNING 1)
SELECT count(*)::integer FROM removed
$$;
REVOKE EXECUTE ON FUNCTION tenure.trim_audit FROM PUBLIC;
