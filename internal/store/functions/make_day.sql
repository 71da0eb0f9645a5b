-- Makes the partition for the finished jobs of a day, in UTC, with the rights of the ledger's owner,
-- which alone may do that. It waits for nobody's lock, behind whom all that finishes would wait: who cannot
-- have all locks at once gets 55P03 and tries again. Attaching a table needs no more
-- of the partitioned one than SHARE UPDATE EXCLUSIVE, beside which jobs finish; making it as a
-- partition would need ACCESS EXCLUSIVE. That it needs of the default partition, where jobs
-- only finish when a day is missing.
--
-- The day has a replica identity, as it may be published, and nobody else can make something of its row
-- type. Jobs that have finished while it had no partition are brought into it. Finishing jobs waits for
-- as long as so many rows take to be moved; where there are more, the day begins in a minute or two, and
-- what finishes until then stays where it is until it is deleted.
--
-- A day does not ask Postgres for summaries of its block ranges, of which that remembers 256 for all
-- databases: one that is there gets those it lacks. That is left when vacuum is at work there, which does the
-- same: whoever waits for its lock makes Postgres end it.
CREATE OR REPLACE FUNCTION tenure.make_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most      CONSTANT integer := 2000;
    partition CONSTANT text := to_char(day, '"completed_job_"YYYYMMDD');
    ends      CONSTANT timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    begins    timestamptz := day::timestamp AT TIME ZONE 'UTC';
    strays    integer;
    ranges    regclass;
BEGIN
    IF to_regclass(format('tenure.%I', partition)) IS NOT NULL THEN
        EXECUTE format('LOCK TABLE tenure.%I IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', partition);
        FOR ranges IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
            WHERE i.indrelid = to_regclass(format('tenure.%I', partition)) AND a.amname = 'brin' AND i.indisvalid LOOP
            PERFORM brin_summarize_new_values(ranges);
        END LOOP;
        RETURN;
    END IF;
    LOCK TABLE ONLY tenure.completed_job IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    SELECT count(*) INTO strays FROM (
        SELECT FROM tenure.completed_job_rest r WHERE r.finished_at >= begins AND r.finished_at < ends LIMIT most + 1) s;
    IF strays > most THEN
        begins := greatest(begins, date_trunc('minute', clock_timestamp()) + interval '2 minutes');
        IF begins >= ends THEN
            RETURN;
        END IF;
    END IF;
    EXECUTE format('CREATE TABLE tenure.%I (LIKE tenure.completed_job INCLUDING ALL)', partition);
    EXECUTE format('REVOKE USAGE ON TYPE tenure.%I FROM PUBLIC', partition);
    EXECUTE format('ALTER TABLE tenure.%I REPLICA IDENTITY FULL', partition);
    FOR ranges IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
            WHERE i.indrelid = to_regclass(format('tenure.%I', partition)) AND a.amname = 'brin' AND i.indisvalid LOOP
        EXECUTE format('ALTER INDEX %s SET (autosummarize = off)', ranges);
    END LOOP;
    IF strays BETWEEN 1 AND most THEN
        EXECUTE format('WITH strays AS (DELETE FROM tenure.completed_job_rest r WHERE r.finished_at >= $1 AND r.finished_at < $2 RETURNING *)
            INSERT INTO tenure.%I SELECT * FROM strays', partition) USING begins, ends;
    END IF;
    EXECUTE format('ALTER TABLE tenure.completed_job ATTACH PARTITION tenure.%I FOR VALUES FROM (%L) TO (%L)',
        partition, to_char(begins AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI"+00"'), to_char(ends AT TIME ZONE 'UTC', 'YYYY-MM-DD" 00:00+00"'));
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.make_day FROM PUBLIC;
