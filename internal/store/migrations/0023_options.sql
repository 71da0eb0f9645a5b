-- What else may be said of a job when it is enqueued: a timeout of its own, a period for which its
-- unique key is taken, whatever becomes of it, and tags. Two tables, and a function in the place of
-- tenure.enqueue. Programs of before go on working: they heed the periods of others, and where they move a tenant its periods and the index of its tags
-- stay behind.

-- +goose Up

-- Unique keys that are taken until a time, also when their job is gone by then; the key of one that is
-- not is in tenure.unique_job, too.
CREATE TABLE tenure.unique_period (
    tenant_id text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    job_id    bigint           NOT NULL,
    free_at   timestamptz      NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX unique_period_free ON tenure.unique_period (free_at);

-- Which jobs have a tag, wherever they stand. The tags themselves go with the job, in its meta under
-- tenure:tags. Rows are written with a job that has tags, and removed some time after it is gone: gone_at
-- is when it was noticed that the job is neither unfinished nor dead any more.
CREATE TABLE tenure.job_tag (
    tenant_id text COLLATE "C" NOT NULL,
    tag       text COLLATE "C" NOT NULL,
    job_id    bigint           NOT NULL,
    gone_at   timestamptz,
    PRIMARY KEY (tenant_id, tag, job_id)
);
CREATE INDEX job_tag_job ON tenure.job_tag (tag, job_id);

-- Takes a tenant's unique key for a new job as tenure.enqueue_key does, for a period if one is given,
-- or finds the job that has it. A job may begin a period and come to its end between the first
-- look and the taking of the key, but not after that. A transaction stricter than READ COMMITTED looks
-- twice at what was there when it began: a row tells it then, by 40001, that a period has begun since.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.take_key(tenant text, unique_key text, unique_for interval, OUT id bigint, OUT duplicate boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine bigint;
BEGIN
    FOR look IN 1..2 LOOP
        SELECT p.job_id, true INTO id, duplicate FROM tenure.unique_period p
        WHERE p.tenant_id = tenant AND p.key = unique_key AND p.free_at > clock_timestamp();
        IF id IS NOT NULL THEN
            DELETE FROM tenure.unique_job u WHERE u.tenant_id = tenant AND u.key = unique_key AND u.job_id = mine;
            RETURN;
        END IF;
        EXIT WHEN look = 2;
        SELECT k.id, k.duplicate INTO mine, duplicate FROM tenure.enqueue_key(tenant, unique_key) k;
        IF mine IS NULL OR duplicate THEN
            id := mine;
            RETURN;
        END IF;
    END LOOP;
    id := mine;
    duplicate := false;
    IF unique_for IS NOT NULL THEN
        INSERT INTO tenure.unique_period (tenant_id, key, job_id, free_at)
        VALUES (tenant, unique_key, mine, clock_timestamp() + unique_for)
        ON CONFLICT (tenant_id, key) DO UPDATE SET job_id = excluded.job_id, free_at = excluded.free_at;
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        INSERT INTO tenure.unique_period (tenant_id, key, job_id, free_at)
        VALUES (tenant, unique_key, mine, clock_timestamp())
        ON CONFLICT (tenant_id, key) DO NOTHING;
    END IF;
END
$$;
-- +goose StatementEnd

-- What is wrong with a job's options that tenure.enqueue_fault does not know; null: nothing. meta has
-- the tags in it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.options_fault(meta jsonb, exclusive_key text, timeout interval, unique_key text, unique_for interval) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tags CONSTANT jsonb := meta->'tenure:tags';
BEGIN
    RETURN CASE
        WHEN octet_length(exclusive_key) NOT BETWEEN 1 AND 1024 THEN 'exclusive_key: 1 to 1024 bytes are allowed'
        WHEN timeout NOT BETWEEN interval '1 ms' AND interval '2147483647 ms' THEN 'timeout: 1 ms to 24 days are allowed'
        WHEN unique_for IS NOT NULL AND unique_key IS NULL THEN 'unique_for: a unique_key is needed, which it holds for'
        WHEN unique_for NOT BETWEEN interval '1 s' AND interval '3660 days' THEN 'unique_for: 1 second to 3660 days are allowed'
        WHEN tags IS NULL THEN NULL
        WHEN jsonb_typeof(tags) <> 'array' THEN 'tags: meta is an object in which tenure:tags is a list of tags, or is not there'
        WHEN jsonb_array_length(tags) > 16 OR EXISTS (
            SELECT FROM jsonb_array_elements(tags) AS t (tag) WHERE jsonb_typeof(tag) <> 'string' OR octet_length(tag #>> '{}') NOT BETWEEN 1 AND 64)
            THEN 'tags: at most 16, each of 1 to 64 bytes, are allowed'
    END;
END
$$;
-- +goose StatementEnd

-- Leads from a job's tags to the job.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.index_tags(tenant text, id bigint, tags jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO tenure.job_tag (tenant_id, tag, job_id)
    SELECT DISTINCT tenant, t.tag, id FROM jsonb_array_elements_text(tags) AS t (tag)
    ON CONFLICT ON CONSTRAINT job_tag_pkey DO UPDATE SET gone_at = NULL;
END
$$;
-- +goose StatementEnd

-- As in 0019, with three arguments more: how long each run may take, for how long from now on the
-- unique key is taken, whatever becomes of the job, and tags.
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
        exclusive_key  text        DEFAULT NULL,
        timeout        interval    DEFAULT NULL,
        unique_for     interval    DEFAULT NULL,
        tags           text[]      DEFAULT NULL,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
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
        PERFORM tenure.notify_holder(tenant, queue, priority, due);
    END IF;
END
$$;
-- +goose StatementEnd

-- It takes the place of the one before, with its owner and who may execute it. Two of a name
-- would leave it open which of them a call means. That is not there if this migration was undone.
-- +goose StatementBegin
DO $$
DECLARE
    before CONSTANT regprocedure := to_regprocedure('tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text)');
    now    CONSTANT regprocedure := 'tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[])';
    may    record;
BEGIN
    IF before IS NULL THEN
        RETURN;
    END IF;
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
-- The function of before is called in the same way; this one goes on without periods and tags.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.take_key(tenant text, unique_key text, unique_for interval, OUT id bigint, OUT duplicate boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT k.id, k.duplicate INTO id, duplicate FROM tenure.enqueue_key(tenant, unique_key) k;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.index_tags(tenant text, id bigint, tags jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
END
$$;
-- +goose StatementEnd
DROP TABLE tenure.job_tag, tenure.unique_period;
