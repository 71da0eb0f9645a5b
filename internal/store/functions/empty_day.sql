-- Empties the partition for the finished jobs of a day that is over, and so gives its space
-- back at once: nobody writes there, so its own lock is free unless somebody reads it.
CREATE OR REPLACE FUNCTION tenure.empty_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition text := to_char(day, '"completed_job_"YYYYMMDD');
    filled boolean;
BEGIN
    EXECUTE format('LOCK TABLE tenure.%I IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    EXECUTE format('SELECT EXISTS (SELECT FROM tenure.%I)', partition) INTO filled;
    IF filled THEN
        EXECUTE format('TRUNCATE tenure.%I', partition);
    END IF;
EXCEPTION WHEN undefined_table THEN -- somebody else has just dropped it
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.empty_day FROM PUBLIC;
