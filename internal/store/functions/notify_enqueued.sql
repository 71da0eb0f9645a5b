-- Tells the holder of a job that waits, or is due within a minute: what is due later it finds itself. Of jobs that a
-- transaction enqueues alike one after the other it is told once. What counts as told is noted in a setting that ends
-- with the transaction: who changes it keeps nobody's but his own holder from hearing of his own jobs.
CREATE OR REPLACE FUNCTION tenure.notify_enqueued(job bigint, tenant text, queue text, priority integer, due timestamptz) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    lane CONSTANT text := coalesce(due::text, format('%L %L %s', tenant, queue, priority));
BEGIN
    IF current_setting('tenure.told', true) IS NOT DISTINCT FROM lane OR due > clock_timestamp() + interval '1 minute' AND due <> tenure.never() THEN
        RETURN;
    END IF;
    PERFORM pg_notify('tenure_enqueued', job::text) FROM tenure.pool p WHERE p.notify;
    PERFORM set_config('tenure.told', lane, true);
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.notify_enqueued FROM PUBLIC;
