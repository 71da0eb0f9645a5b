-- Adds the job that a row of tenure.door asks for. When it is due is worked out behind the check of the
-- arguments: a delay of 300,000 years is 22023, an argument that cannot be, and no overflow. The holder
-- is told of what SQL enqueues; a program names the pool, and tells the holder by gossip.
CREATE OR REPLACE FUNCTION tenure.add_job(asked record, OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql AS $$
DECLARE
    fault text;
    due   timestamptz;
BEGIN
    IF cardinality(asked.tags) > 0 THEN
        IF jsonb_typeof(asked.meta) <> 'object' THEN
            fault := 'meta: an object is needed beside tags';
        END IF;
        asked.meta := coalesce(asked.meta, '{}') || jsonb_build_object('tenure:tags', ARRAY(SELECT DISTINCT t.tag COLLATE "C" FROM unnest(asked.tags) AS t (tag) ORDER BY 1));
    END IF;
    fault := coalesce(tenure.enqueue_fault(asked), fault);
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION '%: %', asked.call, fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    due := coalesce(asked.run_at, clock_timestamp() + asked.delay); -- which the fault has bounded
    SELECT r.refused, r.other_pool INTO refused, other_pool
    FROM tenure.enqueue_refusal(asked.caller, asked.tenant, asked.unique_key IS NOT NULL, asked.pool, asked.with_data) r;
    IF refused IS NULL AND asked.unique_key IS NULL THEN
        id := nextval('tenure.job_id');
        duplicate := false;
    ELSIF refused IS NULL THEN
        SELECT k.id, k.duplicate INTO id, duplicate FROM tenure.take_key(asked.tenant, asked.unique_key, asked.unique_for) k;
        refused := CASE WHEN id IS NULL THEN 'contended' END;
    END IF;
    IF refused IS NOT NULL AND asked.pool IS NULL THEN
        PERFORM tenure.enqueue_raise(asked.caller, asked.tenant, refused, other_pool);
    END IF;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    IF asked.call = 'enqueue_external' THEN
        INSERT INTO tenure.external_job ({{new_job}}, due_at)
        VALUES ({{asked.new_job | id = id | tenant_id = asked.tenant | timeout_ms = NULL}}, CASE WHEN due > clock_timestamp() THEN due END);
    ELSIF due IS NULL THEN
        INSERT INTO tenure.job ({{new_job}})
        VALUES ({{asked.new_job | id = id | tenant_id = asked.tenant | timeout_ms = extract(epoch FROM asked.timeout) * 1000}});
    ELSE
        INSERT INTO tenure.timer_job ({{new_job}}, due_at)
        VALUES ({{asked.new_job | id = id | tenant_id = asked.tenant | timeout_ms = extract(epoch FROM asked.timeout) * 1000}}, due);
    END IF;
    IF asked.meta->'tenure:tags' IS NOT NULL THEN
        PERFORM tenure.index_tags(asked.tenant, id, asked.meta->'tenure:tags');
    END IF;
    IF asked.pool IS NULL AND asked.call <> 'enqueue_external' THEN -- whose workers look by themselves
        PERFORM tenure.notify_enqueued(id, asked.tenant, asked.queue, asked.priority, due);
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.add_job FROM PUBLIC;
