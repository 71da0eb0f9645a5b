-- Exclusive keys: of a tenant's jobs with one key, at most one runs at a time, in order. The
-- columns are there since 0001. The indexes hold only rows with a key, of which there are none
-- yet; while they are made, enqueuing, retries and firing wait, for as long as it takes to read
-- the two tables once. Programs of before go on working; as holders of the lock they heed no key.

-- +goose Up

-- The waiting jobs of a key in order: one that is tried again stands before those that were behind it.
CREATE INDEX job_exclusive ON tenure.job (tenant_id, exclusive_key, (attempt = 0), position) WHERE exclusive_key IS NOT NULL;

-- The keys whose jobs wait until another of theirs is tried again.
CREATE INDEX timer_job_exclusive ON tenure.timer_job (tenant_id, exclusive_key) WHERE exclusive_key IS NOT NULL AND attempt > 0;

-- As in 0015, with one argument more: a key under which at most one of the tenant's jobs runs at
-- a time.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue(
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
        exclusive_key  text        DEFAULT NULL,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    fault  CONSTANT text := coalesce(
        tenure.enqueue_fault(tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key),
        CASE WHEN octet_length(exclusive_key) NOT BETWEEN 1 AND 1024 THEN 'exclusive_key: 1 to 1024 bytes are allowed' END);
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
        INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key);
    ELSE
        INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key, due_at)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, exclusive_key, due);
    END IF;
    IF pool IS NULL THEN
        PERFORM tenure.notify_holder(tenant, queue, priority, due);
    END IF;
END
$$;
-- +goose StatementEnd

-- It takes the place of the one before, with its owner and who may execute it. Two of a name
-- would leave it open which of them a call means.
-- +goose StatementBegin
DO $$
DECLARE
    before CONSTANT regprocedure := 'tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean)';
    now    CONSTANT regprocedure := 'tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text)';
    may    record;
BEGIN
    EXECUTE (SELECT format('ALTER FUNCTION %s OWNER TO %I', now, pg_get_userbyid(p.proowner)) FROM pg_proc p WHERE p.oid = before);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', now);
    FOR may IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee, a.is_grantable
        FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE p.oid = before AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', now, may.grantee) || CASE WHEN may.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END;
    END LOOP;
    EXECUTE format('DROP FUNCTION %s', before);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP INDEX tenure.timer_job_exclusive;
DROP INDEX tenure.job_exclusive; -- the function of before is called in the same way
