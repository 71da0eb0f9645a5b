-- A ledger may be published: CREATE PUBLICATION … FOR ALL TABLES, as for change capture and upgrades
-- between two servers, has Postgres refuse to update and delete rows of tables without a key.
-- Programs of before go on working. It holds the locks of these tables for a moment.

-- +goose Up
-- Days of finished jobs that are there get it behind the migrations: see index_missing.sql.
ALTER TABLE tenure.job_error REPLICA IDENTITY FULL;
ALTER TABLE tenure.incarnation REPLICA IDENTITY FULL;
ALTER TABLE tenure.awaited_end REPLICA IDENTITY FULL;
ALTER TABLE tenure.completed_job_rest REPLICA IDENTITY FULL;
-- As in 0012, with that.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.make_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition text := to_char(day, '"completed_job_"YYYYMMDD');
BEGIN
    IF to_regclass(format('tenure.%I', partition)) IS NOT NULL THEN
        RETURN;
    END IF;
    LOCK TABLE ONLY tenure.completed_job IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    EXECUTE format('CREATE TABLE tenure.%I (LIKE tenure.completed_job INCLUDING ALL)', partition);
    EXECUTE format('ALTER TABLE tenure.%I REPLICA IDENTITY FULL', partition);
    EXECUTE format('ALTER TABLE tenure.completed_job ATTACH PARTITION tenure.%I FOR VALUES FROM (%L) TO (%L)',
        partition, to_char(day, 'YYYY-MM-DD" 00:00+00"'), to_char(day + 1, 'YYYY-MM-DD" 00:00+00"'));
END
$$;
-- +goose StatementEnd

-- +goose Down
-- Nothing has to be undone: the steps before know nothing of it.
SELECT 1;
