-- Who is told that a job was enqueued by SQL hears its id, and no longer its tenant and queue: anybody who can connect
-- may listen, and may notify. The holder looks up where the job waits. Programs of before do not know what an id
-- says, and look for lanes. Adds a function and replaces two, and locks nothing that others wait for.

-- +goose Up

-- Tells the holder of a job that waits, or is due within a minute: what is due later it finds itself. Of jobs that a
-- transaction enqueues alike one after the other it is told once. What counts as told is noted in a setting that ends
-- with the transaction: who changes it keeps nobody's but his own holder from hearing of his own jobs.
-- +goose StatementBegin
CREATE FUNCTION tenure.notify_enqueued(job bigint, tenant text, queue text, priority integer, due timestamptz) RETURNS void
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
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
DECLARE
    owner CONSTANT text := (SELECT quote_ident(pg_get_userbyid(p.proowner)) FROM pg_proc p WHERE p.oid = 'tenure.notify_holder(text, text, integer, timestamptz)'::regprocedure);
BEGIN
    REVOKE EXECUTE ON FUNCTION tenure.notify_enqueued FROM PUBLIC;
    IF owner <> quote_ident(current_user) THEN
        EXECUTE 'ALTER FUNCTION tenure.notify_enqueued OWNER TO ' || owner;
    END IF;
END
$$;
-- +goose StatementEnd

-- As in 0035, but that it says nothing of the job, which has the holder look: it is for single jobs that are retried.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.notify_holder(tenant text, queue text, priority integer, due timestamptz) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tenure_enqueued', '') FROM tenure.pool p WHERE p.notify;
END
$$;
-- +goose StatementEnd

-- As in 0035, but that the holder hears the job's id.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- +goose Down
-- tenure.enqueue_as goes on calling what this made.
SELECT 1;
