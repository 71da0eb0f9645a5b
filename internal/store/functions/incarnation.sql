-- The first turn of the present incarnation; 0: none has begun, or this is a standby,
-- where an unlogged table must not be read. The functions that each insert and claim call
-- have no SET search_path, which would cost a quarter more: nothing in them goes by it.
CREATE OR REPLACE FUNCTION tenure.incarnation() RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    turn integer;
BEGIN
    IF pg_catalog.pg_is_in_recovery() THEN
        RETURN 0;
    END IF;
    SELECT p.first_turn INTO turn FROM tenure.present_incarnation p LIMIT 1;
    RETURN coalesce(turn, 0);
END
$$;
