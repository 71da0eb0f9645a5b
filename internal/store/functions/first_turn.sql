-- The first turn of a job that is inserted now: that of the present incarnation, so that
-- the jobs of a batch share one. Between a crash and the moment in which a node begins the
-- next incarnation, a turn of this transaction's own, from another range; nobody waits or
-- writes for it. SECURITY DEFINER, so that whoever may insert jobs needs no other privilege.
CREATE OR REPLACE FUNCTION tenure.first_turn() RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    turn integer;
BEGIN
    SELECT p.first_turn INTO turn FROM tenure.present_incarnation p LIMIT 1;
    IF turn IS NULL THEN
        turn := 1600000000 OPERATOR(pg_catalog.+) (pg_catalog.hashtextextended(pg_catalog.now()::pg_catalog.text,
            pg_catalog.pg_backend_pid()) OPERATOR(pg_catalog.&) 268435455);
    END IF;
    RETURN turn;
END
$$;
