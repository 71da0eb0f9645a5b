-- What tenure.enqueue does for a caller. When a job is due is worked out behind the check of the
-- arguments: a delay of 300,000 years is 22023, an argument that cannot be, and no overflow. The holder
-- is told of what SQL enqueues; a program names the pool, and tells the holder by gossip.
CREATE OR REPLACE FUNCTION tenure.enqueue_as(caller text, tenant text, kind text, payload jsonb, queue text, priority integer,
        run_at timestamptz, delay interval, max_attempts integer, meta jsonb, correlation_id text, unique_key text,
        pool integer, with_data boolean, exclusive_key text, timeout interval, unique_for interval, tags text[],
        OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql AS $$
DECLARE
    tagged CONSTANT jsonb := CASE WHEN cardinality(tags) > 0 THEN coalesce(meta, '{}') || jsonb_build_object('tenure:tags', ARRAY(SELECT DISTINCT t.tag COLLATE "C" FROM unnest(tags) AS t (tag) ORDER BY 1)) ELSE meta END;
    fault  CONSTANT text := coalesce(
        tenure.enqueue_fault(tenant, kind, payload, queue, priority, run_at, delay, max_attempts, tagged, correlation_id, unique_key),
        CASE WHEN cardinality(tags) > 0 AND jsonb_typeof(meta) <> 'object' THEN 'meta: an object is needed beside tags' END,
        tenure.options_fault(tagged, exclusive_key, timeout, unique_key, unique_for));
    timeout_ms integer;
    due    timestamptz;
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue: %', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    due := coalesce(run_at, clock_timestamp() + delay); -- which the fault has bounded
    timeout_ms := extract(epoch FROM timeout) * 1000;
    SELECT r.refused, r.other_pool INTO refused, other_pool
    FROM tenure.enqueue_refusal(caller, tenant, unique_key IS NOT NULL, pool, with_data) r;
    IF refused IS NULL AND unique_key IS NULL THEN
        id := nextval('tenure.job_id');
        duplicate := false;
    ELSIF refused IS NULL THEN
        SELECT k.id, k.duplicate INTO id, duplicate FROM tenure.take_key(tenant, unique_key, unique_for) k;
        refused := CASE WHEN id IS NULL THEN 'contended' END;
    END IF;
    IF refused IS NOT NULL AND pool IS NULL THEN
        PERFORM tenure.enqueue_raise(caller, tenant, refused, other_pool);
    END IF;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    IF due IS NULL THEN
        INSERT INTO tenure.job (id, timeout_ms, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key)
        VALUES (id, timeout_ms, tenant, queue, kind, payload, priority, max_attempts, tagged, correlation_id, unique_key, exclusive_key);
    ELSE
        INSERT INTO tenure.timer_job (id, timeout_ms, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key, due_at)
        VALUES (id, timeout_ms, tenant, queue, kind, payload, priority, max_attempts, tagged, correlation_id, unique_key, exclusive_key, due);
    END IF;
    IF tagged->'tenure:tags' IS NOT NULL THEN
        PERFORM tenure.index_tags(tenant, id, tagged->'tenure:tags');
    END IF;
    IF pool IS NULL THEN
        PERFORM tenure.notify_enqueued(id, tenant, queue, priority, due);
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_as FROM PUBLIC;
