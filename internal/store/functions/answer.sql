-- Does what is asked at the door, with the owner's rights. It works for that view alone, and nobody may make another
-- trigger of it: only there caller is who executes it.
CREATE OR REPLACE FUNCTION tenure.answer() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'tenure.door'::regclass
       OR NOT has_function_privilege(NEW.caller, CASE NEW.call
            WHEN 'enqueue' THEN 'tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[])'::regprocedure
            WHEN 'enqueue_external' THEN 'tenure.enqueue_external(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean)'::regprocedure
            WHEN 'enqueue_linked' THEN 'tenure.enqueue_linked(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[], bigint[], text, boolean, bigint)'::regprocedure
            WHEN 'cancel' THEN 'tenure.cancel(bigint, boolean)'::regprocedure
            WHEN 'retry' THEN 'tenure.retry(bigint)'::regprocedure END, 'EXECUTE') THEN
        RAISE EXCEPTION 'permission denied for function tenure.%', NEW.call USING ERRCODE = 'insufficient_privilege';
    END IF;
    CASE NEW.call
    WHEN 'enqueue' THEN
        SELECT e.id, e.duplicate, e.refused, e.other_pool INTO NEW.id, NEW.duplicate, NEW.refused, NEW.other_pool
        FROM tenure.enqueue_as(NEW.caller, NEW.tenant, NEW.kind, NEW.payload, NEW.queue, NEW.priority, NEW.run_at, NEW.delay,
            NEW.max_attempts, NEW.meta, NEW.correlation_id, NEW.unique_key, NEW.pool, NEW.with_data,
            NEW.exclusive_key, NEW.timeout, NEW.unique_for, NEW.tags) e;
    WHEN 'enqueue_external' THEN
        SELECT e.id, e.duplicate, e.refused, e.other_pool INTO NEW.id, NEW.duplicate, NEW.refused, NEW.other_pool
        FROM tenure.enqueue_external_as(NEW.caller, NEW.tenant, NEW.kind, NEW.payload, NEW.queue, NEW.priority, NEW.run_at, NEW.delay,
            NEW.max_attempts, NEW.meta, NEW.correlation_id, NEW.unique_key, NEW.pool, NEW.with_data) e;
    WHEN 'enqueue_linked' THEN
        SELECT e.id, e.duplicate, e.refused, e.other_pool INTO NEW.id, NEW.duplicate, NEW.refused, NEW.other_pool
        FROM tenure.enqueue_linked_as(NEW.caller, NEW.tenant, NEW.kind, NEW.payload, NEW.queue, NEW.priority, NEW.run_at, NEW.delay,
            NEW.max_attempts, NEW.meta, NEW.correlation_id, NEW.unique_key, NEW.pool, NEW.with_data,
            NEW.exclusive_key, NEW.timeout, NEW.unique_for, NEW.tags, NEW.after_jobs, NEW.on_failure, NEW.as_batch, NEW.in_batch) e;
    WHEN 'cancel' THEN
        NEW.answer := coalesce(tenure.cancel_as(NEW.caller, NEW.job_id, NEW.keep), '');
    WHEN 'retry' THEN
        NEW.answer := tenure.retry_as(NEW.caller, NEW.job_id);
    END CASE;
    RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.answer FROM PUBLIC;
