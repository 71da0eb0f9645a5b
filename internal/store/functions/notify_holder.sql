-- Has the holder look for a job, without saying for which: it is for single jobs that are retried.
CREATE OR REPLACE FUNCTION tenure.notify_holder(tenant text, queue text, priority integer, due timestamptz) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tenure_enqueued', '') FROM tenure.pool p WHERE p.notify;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.notify_holder FROM PUBLIC;
