-- Drops the partition for the finished jobs of a day, if it is there, with the rights of the ledger's
-- owner. That needs the partitioned table to be free, too, for which it takes the moment between two
-- transactions that finish jobs. A day on which something of others' depends is only taken out of the
-- finished jobs: emptied before, it leaves nothing there but its name.
CREATE OR REPLACE FUNCTION tenure.drop_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition text := to_char(day, '"completed_job_"YYYYMMDD');
BEGIN
    LOCK TABLE ONLY tenure.completed_job IN ACCESS EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    EXECUTE format('LOCK TABLE tenure.%I IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    EXECUTE format('DROP TABLE tenure.%I', partition);
EXCEPTION
    WHEN undefined_table THEN
    WHEN dependent_objects_still_exist THEN
        EXECUTE format('ALTER TABLE tenure.completed_job DETACH PARTITION tenure.%I', partition);
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.drop_day FROM PUBLIC;
