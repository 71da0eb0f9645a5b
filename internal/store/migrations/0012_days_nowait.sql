-- Days of finished jobs come and go without waiting for anybody's lock, behind whom all that
-- finishes would wait: no function here queues for an ACCESS EXCLUSIVE lock. Who cannot
-- have all locks at once gets 55P03 and tries again, as earlier programs do, too.

-- +goose Up

-- Makes the partition for the finished jobs of a day, in UTC. Attaching a table needs no more
-- of the partitioned one than SHARE UPDATE EXCLUSIVE, beside which jobs finish; making it as a
-- partition would need ACCESS EXCLUSIVE. That it needs of the default partition, where jobs
-- only finish when a day is missing.
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
    EXECUTE format('ALTER TABLE tenure.completed_job ATTACH PARTITION tenure.%I FOR VALUES FROM (%L) TO (%L)',
        partition, to_char(day, 'YYYY-MM-DD" 00:00+00"'), to_char(day + 1, 'YYYY-MM-DD" 00:00+00"'));
END
$$;
-- +goose StatementEnd

-- Empties the partition for the finished jobs of a day that is over, and so gives its space
-- back at once: nobody writes there, so its own lock is free unless somebody reads it.
-- +goose StatementBegin
CREATE FUNCTION tenure.empty_day(day date) RETURNS void
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
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION tenure.empty_day(date) FROM PUBLIC;

-- Drops the partition for the finished jobs of a day, if it is there. That needs the
-- partitioned table to be free, too, for which it takes the moment between two transactions
-- that finish jobs.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.drop_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition text := to_char(day, '"completed_job_"YYYYMMDD');
BEGIN
    LOCK TABLE ONLY tenure.completed_job IN ACCESS EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    EXECUTE format('LOCK TABLE tenure.%I IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    EXECUTE format('DROP TABLE tenure.%I', partition);
EXCEPTION WHEN undefined_table THEN
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.drop_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS tenure.%I', to_char(day, '"completed_job_"YYYYMMDD'));
END
$$;
-- +goose StatementEnd
DROP FUNCTION tenure.empty_day(date);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.make_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE IF NOT EXISTS tenure.%I PARTITION OF tenure.completed_job FOR VALUES FROM (%L) TO (%L)',
        to_char(day, '"completed_job_"YYYYMMDD'), to_char(day, 'YYYY-MM-DD" 00:00+00"'), to_char(day + 1, 'YYYY-MM-DD" 00:00+00"'));
END
$$;
-- +goose StatementEnd
