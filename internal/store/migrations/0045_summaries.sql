-- The holder of a pool's lock brings the block range indexes of finished jobs up to date itself, four times a minute. Until
-- now Postgres was asked to at the end of each range; it remembers 256 such requests for all databases and deals with
-- them once a minute, so that from some 700 finished jobs a second on its log filled with "request for BRIN range
-- summarization … was not recorded", and lists read those ranges row by row. Days that are there go on as they
-- are: they are gone soon. Programs of before go on working; as holders of a lock they leave it to vacuum.

-- +goose Up
-- As in 0037, but that a day does not ask Postgres for summaries, and that one that is there gets those it lacks. That
-- is left when vacuum is at work there, which does the same: whoever waits for its lock makes Postgres end it.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- +goose Down
-- Nothing has to be undone: the steps before know nothing of it.
SELECT 1;
