-- Who holds a pool's lock hears at once of jobs that SQL enqueues. Adds a column and a function;
-- programs of before go on with tenure.enqueue as it is called now.

-- +goose Up

-- Whether that is so. A transaction that has notified commits alone, one after the other in the
-- whole server: where very many transactions enqueue by SQL it may be better without.
ALTER TABLE tenure.pool ADD COLUMN notify boolean NOT NULL DEFAULT true;

-- Tells the holder of a job in the words of package acquisition's Hint. Equal ones of a
-- transaction are sent once.
-- +goose StatementBegin
CREATE FUNCTION tenure.notify_holder(tenant text, queue text, priority integer, due timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('tenure_enqueued', CASE
        WHEN due IS NULL THEN jsonb_build_object('l', jsonb_build_array(jsonb_build_object('Tenant', tenant, 'Queue', queue, 'Priority', priority)))
        ELSE jsonb_build_object('d', greatest(1, ceil(extract(epoch FROM due - clock_timestamp()) * 1000)::bigint * 1000000)) END::text)
    FROM tenure.pool p WHERE p.notify;
END
$$;
-- +goose StatementEnd

-- As in 0008, but that the holder is told of what SQL enqueues. A program names the pool, and
-- tells the holder by gossip.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue(
        tenant         text,
        kind           text,
        payload        jsonb       DEFAULT '{}',
        queue          text        DEFAULT 'default',
        priority       integer     DEFAULT 0,
        run_at         timestamptz DEFAULT NULL,
        delay          interval    DEFAULT NULL,
        max_attempts   integer     DEFAULT NULL,
        meta           jsonb       DEFAULT NULL,
        correlation_id text        DEFAULT NULL,
        unique_key     text        DEFAULT NULL,
        pool           integer     DEFAULT NULL,
        with_data      boolean     DEFAULT true,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    fault  CONSTANT text := tenure.enqueue_fault(tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key);
    due    timestamptz;
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue: %', fault USING ERRCODE = 'invalid_parameter_value';
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
    IF due IS NULL THEN
        INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key);
    ELSE
        INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due_at)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due);
    END IF;
    IF pool IS NULL THEN
        PERFORM tenure.notify_holder(tenant, queue, priority, due);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- tenure.enqueue must not call what goes: it is as in 0008 then
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue(
        tenant         text,
        kind           text,
        payload        jsonb       DEFAULT '{}',
        queue          text        DEFAULT 'default',
        priority       integer     DEFAULT 0,
        run_at         timestamptz DEFAULT NULL,
        delay          interval    DEFAULT NULL,
        max_attempts   integer     DEFAULT NULL,
        meta           jsonb       DEFAULT NULL,
        correlation_id text        DEFAULT NULL,
        unique_key     text        DEFAULT NULL,
        pool           integer     DEFAULT NULL,
        with_data      boolean     DEFAULT true,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    fault  CONSTANT text := tenure.enqueue_fault(tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key);
    due    timestamptz;
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue: %', fault USING ERRCODE = 'invalid_parameter_value';
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
    IF due IS NULL THEN
        INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key);
    ELSE
        INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due_at)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due);
    END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION tenure.notify_holder(text, text, integer, timestamptz);
ALTER TABLE tenure.pool DROP COLUMN notify;
