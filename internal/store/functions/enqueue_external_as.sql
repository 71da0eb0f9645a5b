-- What tenure.enqueue_external does for a caller.
CREATE OR REPLACE FUNCTION tenure.enqueue_external_as(caller text, tenant text, topic text, payload jsonb, queue text,
        priority integer, run_at timestamptz, delay interval, max_attempts integer, meta jsonb, correlation_id text,
        unique_key text, pool integer, with_data boolean,
        OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql AS $$
DECLARE
    fault  CONSTANT text := tenure.enqueue_fault(tenant, topic, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key);
    due    timestamptz;
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue_external: %', CASE WHEN fault LIKE 'kind:%' THEN 'topic' || substr(fault, 5) ELSE fault END
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    due := coalesce(run_at, clock_timestamp() + delay); -- which the fault has bounded
    SELECT r.refused, r.other_pool INTO refused, other_pool
    FROM tenure.enqueue_refusal(caller, tenant, unique_key IS NOT NULL, pool, with_data) r;
    IF refused IS NULL AND unique_key IS NULL THEN
        id := nextval('tenure.job_id');
        duplicate := false;
    ELSIF refused IS NULL THEN
        SELECT k.id, k.duplicate INTO id, duplicate FROM tenure.enqueue_key(tenant, unique_key) k;
        refused := CASE WHEN id IS NULL THEN 'contended' END;
    END IF;
    IF refused IS NOT NULL AND pool IS NULL THEN
        PERFORM tenure.enqueue_raise(caller, tenant, refused, other_pool);
    END IF;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    INSERT INTO tenure.external_job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due_at)
    VALUES (id, tenant, queue, topic, payload, priority, max_attempts, meta, correlation_id, unique_key, CASE WHEN due > clock_timestamp() THEN due END);
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_external_as FROM PUBLIC;
