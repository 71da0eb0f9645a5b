-- A ledger may be published: CREATE PUBLICATION … FOR ALL TABLES, as for change capture and upgrades
-- between two servers, has Postgres refuse to update and delete rows of tables without a key.
-- And days are made whatever has finished before. Programs of before go on working. It holds the locks of these tables for a moment.

-- +goose Up
-- Days of finished jobs that are there get it behind the migrations: see index_missing.sql.
ALTER TABLE tenure.job_error REPLICA IDENTITY FULL;
ALTER TABLE tenure.incarnation REPLICA IDENTITY FULL;
ALTER TABLE tenure.awaited_end REPLICA IDENTITY FULL;
ALTER TABLE tenure.completed_job_rest REPLICA IDENTITY FULL;
-- As in 0012, but that the day may be published, and that jobs which have finished while it had no partition are
-- brought into it: before, the first of them kept the whole day in the default partition, where rows are
-- deleted one by one. Finishing jobs waits for as long as so many rows take to be moved; where there are more, the day begins in a minute or two, and what finishes until then stays where it is until it is deleted.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.make_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most      CONSTANT integer := 2000;
    partition CONSTANT text := to_char(day, '"completed_job_"YYYYMMDD');
    ends      CONSTANT timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    begins    timestamptz := day::timestamp AT TIME ZONE 'UTC';
    strays    integer;
BEGIN
    IF to_regclass(format('tenure.%I', partition)) IS NOT NULL THEN
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
