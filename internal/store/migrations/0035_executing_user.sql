-- Whom a call of the ledger's functions is for says the user who executes it, and no longer the role that
-- was set: what a tenant has made may be executed by somebody else. The functions that everybody may call
-- keep their names, arguments, owners and who may execute them; they run as who calls them and go
-- through a view, and what they did is done by functions behind it. ADR 68 tells why. Programs of
-- before go on working. Creates new objects and replaces functions, and locks nothing that others wait for.

-- +goose Up

-- The door: what is asked of the ledger is a row that is inserted here. A function with the owner's
-- rights does not see who executed it; the default of a column does, and it is one that
-- nobody may give a value of his own.
CREATE VIEW tenure.door AS
SELECT NULL::text AS call, NULL::text AS tenant, NULL::text AS kind, NULL::jsonb AS payload, NULL::text AS queue, NULL::integer AS priority,
       NULL::timestamptz AS run_at, NULL::interval AS delay, NULL::integer AS max_attempts, NULL::jsonb AS meta,
       NULL::text AS correlation_id, NULL::text AS unique_key, NULL::integer AS pool, NULL::boolean AS with_data,
       NULL::text AS exclusive_key, NULL::interval AS timeout, NULL::interval AS unique_for, NULL::text[] AS tags,
       NULL::bigint[] AS after_jobs, NULL::text AS on_failure, NULL::boolean AS as_batch, NULL::bigint AS in_batch,
       NULL::bigint AS job_id, NULL::boolean AS keep,
       NULL::text AS caller,
       NULL::bigint AS id, NULL::boolean AS duplicate, NULL::text AS refused, NULL::text AS other_pool, NULL::text AS answer
WHERE false;
ALTER VIEW tenure.door ALTER COLUMN caller SET DEFAULT current_user;
GRANT INSERT (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key, pool, with_data,
              exclusive_key, timeout, unique_for, tags, after_jobs, on_failure, as_batch, in_batch, job_id, keep),
      SELECT (id, duplicate, refused, other_pool, answer)
    ON tenure.door TO PUBLIC; -- who may execute which function is asked behind it

-- Whether who executes this may use all of his rights: when the statement that his client sent calls one of
-- these functions itself, or when a function calls it that is executed with the rights of its owner,
-- who answers for it. What a statement only comes across, such as a trigger, a view or an expression of
-- a table, may be a tenant's: it acts for the tenant whose role executes it, and for nobody else. Where
-- no tenant has a role there is nobody to be kept apart. Literals, comments and names in quotes, which
-- may be a tenant's, call nothing. settle_awaited is the holder's, and cancels. \x22 and \x27 are the quotes.
-- +goose StatementBegin
CREATE FUNCTION tenure.calls_itself(caller text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN caller <> CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END
        OR regexp_replace(current_query(),
               $re$\x22(tenure|enqueue|enqueue_external|enqueue_linked|cancel|retry|settle_awaited)\x22|\x22(?:[^\x22]|\x22\x22)*\x22|\x27[^\x27]*\x27|-{2}[^\n]*|/[*](?:[^*]|[*]+[^*/])*[*]+/$re$, '\1 ', 'g')
           ~* $re$(^|[^\w.$])tenure\s*\.\s*((enqueue|enqueue_external|enqueue_linked|cancel|retry|settle_awaited)\s*\(|door\M)$re$
        OR NOT EXISTS (SELECT FROM tenure.tenant_role);
END
$$;
-- +goose StatementEnd

-- Whether a caller may do to a tenant's jobs what takes this privilege on tenure.job, or, for ENQUEUE, the one
-- to insert into its column tenant_id: for every tenant, or for none in particular (null), who has it; else
-- for those whose role he is, or has the rights of. looks: he only looks, and may use all of his
-- rights. It is executed with the rights of the ledger's owner, as tenants' roles may not read which
-- roles there are.
-- +goose StatementBegin
CREATE FUNCTION tenure.job_allowed(caller text, tenant text, privilege text, looks boolean) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (CASE privilege WHEN 'ENQUEUE' THEN has_column_privilege(caller, 'tenure.job'::regclass, 'tenant_id', 'INSERT')
                       ELSE has_table_privilege(caller, 'tenure.job'::regclass, privilege) END)
       AND (looks OR tenure.calls_itself(caller)) THEN
        RETURN true;
    END IF;
    RETURN EXISTS (
        SELECT FROM pg_roles r
        WHERE r.rolname = coalesce((SELECT t.role_name FROM tenure.tenant_role t WHERE t.tenant_id = tenant),
                                   (SELECT replace(t.role_name, '{tenant}', tenant) FROM tenure.tenant_role t WHERE t.tenant_id = ''))
          AND (r.rolname = caller OR pg_has_role(caller, r.oid, 'USAGE') AND (looks OR tenure.calls_itself(caller))));
END
$$;
-- +goose StatementEnd

-- As in 0022, for who executes it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_refusal(caller text, tenant text, keyed boolean, pool integer, with_data boolean,
        OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql AS $$
DECLARE
    place record;
BEGIN
    SELECT p.number, t.state, t.other_pool, t.held, t.max_waiting, t.over_quota_at INTO place
    FROM tenure.pool p LEFT JOIN tenure.tenant t ON t.tenant_id = tenant;
    refused := CASE
        WHEN place.number IS NULL OR pool <> place.number THEN 'wrong pool'
        WHEN NOT tenure.job_allowed(caller, tenant, 'ENQUEUE', false) THEN 'forbidden'
        WHEN place.state = 'moved' THEN 'moved'
        WHEN place.state = 'moving' AND place.held AND with_data THEN 'held'
        WHEN place.state = 'arriving' AND keyed THEN 'arriving' -- not all its keys are here yet
        WHEN place.over_quota_at > clock_timestamp() - interval '1 minute' AND place.max_waiting IS NOT NULL THEN 'quota'
    END;
    IF refused IN ('moved', 'held') THEN
        other_pool := place.other_pool;
    ELSIF refused = 'quota' THEN
        other_pool := place.max_waiting; -- there is no column of its own for it
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_raise(caller text, tenant text, refused text, other_pool text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    CASE refused
    WHEN 'wrong pool' THEN
        RAISE EXCEPTION 'the ledger in database % has no number yet', current_database()
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run: tenure migrate';
    WHEN 'forbidden' THEN
        RAISE EXCEPTION 'role % may not enqueue for tenant %', caller, tenant
            USING ERRCODE = 'insufficient_privilege',
                  HINT = CASE WHEN tenure.calls_itself(caller)
                      THEN 'Which role is a tenant''s stands in tenure.tenant_role, which tenure migrate --grants fills from the configuration.'
                      ELSE 'A function, trigger or view that the statement did not write itself enqueues for the tenant whose role executes it. '
                           'To enqueue for others, make it a function with SECURITY DEFINER, and its owner another user than this one, who may.' END;
    WHEN 'moved' THEN
        RAISE EXCEPTION 'tenant % has moved to pool %', tenant, other_pool USING ERRCODE = 'TN003', DETAIL = other_pool;
    WHEN 'held' THEN
        RAISE EXCEPTION 'tenant % is held while its data is copied to pool %', tenant, other_pool USING ERRCODE = 'TN004', DETAIL = other_pool;
    WHEN 'arriving' THEN
        RAISE EXCEPTION 'tenant % is being moved into this pool', tenant
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again when it has arrived.';
    WHEN 'quota' THEN
        RAISE EXCEPTION 'tenant % has % jobs waiting, as many as it may', tenant, other_pool
            USING ERRCODE = 'TN006', HINT = format('Try again when some have run, or raise the quota: tenure tenants limit %s --max-waiting N', tenant);
    ELSE
        RAISE EXCEPTION 'the unique key was taken by a transaction that cannot be seen yet'
            USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
    END CASE;
END
$$;
-- +goose StatementEnd

-- What tenure.enqueue of 0023 did.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_as(caller text, tenant text, kind text, payload jsonb, queue text, priority integer,
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
        PERFORM tenure.notify_holder(tenant, queue, priority, due);
    END IF;
END
$$;
-- +goose StatementEnd

-- What tenure.enqueue_external of 0022 did.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_external_as(caller text, tenant text, topic text, payload jsonb, queue text,
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
-- +goose StatementEnd

-- What tenure.enqueue_linked of 0024 did.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_linked_as(caller text, tenant text, kind text, payload jsonb, queue text,
        priority integer, run_at timestamptz, delay interval, max_attempts integer, meta jsonb, correlation_id text,
        unique_key text, pool integer, with_data boolean, exclusive_key text, timeout interval, unique_for interval,
        tags text[], after_jobs bigint[], on_failure text, as_batch boolean, in_batch bigint,
        OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = on AS $$
DECLARE
    awaits  CONSTANT boolean := coalesce(as_batch, false) OR coalesce(cardinality(after_jobs), 0) > 0;
    fault   CONSTANT text := CASE
        WHEN cardinality(after_jobs) > 1000 THEN 'after_jobs: at most 1000 are allowed'
        WHEN array_position(after_jobs, NULL) IS NOT NULL OR 0 >= ANY (after_jobs) THEN 'after_jobs: ids of jobs are above 0'
        WHEN in_batch <= 0 THEN 'in_batch: ids of batches are above 0'
        WHEN on_failure IS NULL OR on_failure NOT IN ('wait', 'cancel', 'run') THEN 'on_failure: wait, cancel and run are allowed'
        WHEN on_failure <> 'wait' AND NOT awaits THEN 'on_failure: it is for jobs with after_jobs or as_batch'
        WHEN awaits AND (run_at IS NOT NULL OR delay IS NOT NULL) THEN 'run_at, delay: a job that starts when others have ended cannot have a time as well'
    END;
    missing bigint[] := ARRAY(SELECT DISTINCT a FROM unnest(after_jobs) a);
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue_linked: %', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT e.id, e.duplicate, e.refused, e.other_pool INTO id, duplicate, refused, other_pool
    FROM tenure.enqueue_as(caller, tenant, kind, payload, queue, priority,
        CASE WHEN awaits THEN tenure.never() ELSE run_at END, CASE WHEN NOT awaits THEN delay END,
        max_attempts, meta, correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags) e;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    IF (in_batch IS NOT NULL OR cardinality(missing) > 0)
       AND EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = enqueue_linked_as.tenant AND t.state = 'arriving') THEN
        refused := 'arriving'; -- not all that it may be linked to is here yet
        RAISE EXCEPTION USING ERRCODE = 'TN007';
    END IF;
    IF in_batch IS NOT NULL THEN
        PERFORM FROM tenure.awaiting w
        WHERE w.job_id = in_batch AND w.tenant_id = enqueue_linked_as.tenant AND w.batch AND w.closed_at IS NULL
        FOR SHARE; -- it is not closed before this commits
        IF NOT FOUND OR NOT tenure.is_awaiting(in_batch) THEN
            refused := 'no batch';
            other_pool := in_batch;
            RAISE EXCEPTION USING ERRCODE = 'TN007';
        END IF;
        INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id) VALUES (tenant, in_batch, id);
    END IF;
    IF NOT awaits THEN
        RETURN;
    END IF;
    INSERT INTO tenure.awaiting (job_id, tenant_id, on_failure, batch) VALUES (id, tenant, on_failure, as_batch);
    FOR look IN 1..3 LOOP -- they may move while they are looked for
        EXIT WHEN cardinality(missing) = 0;
        WITH w AS (SELECT j.id FROM tenure.job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        t AS (SELECT j.id FROM tenure.timer_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        x AS (SELECT j.id FROM tenure.external_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        s AS (SELECT j.id FROM tenure.suspended_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        d AS (SELECT j.id FROM tenure.dead_letter_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id FOR KEY SHARE),
        c AS (SELECT DISTINCT ON (j.id) j.id, CASE j.outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END AS outcome FROM tenure.completed_job j
              WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked_as.tenant ORDER BY j.id, j.finished_at DESC),
        noted AS (
            INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id, outcome)
            SELECT enqueue_linked_as.tenant, enqueue_linked_as.id, f.id, f.outcome
            FROM (SELECT w.id, NULL AS outcome FROM w UNION ALL SELECT t.id, NULL FROM t UNION ALL SELECT x.id, NULL FROM x UNION ALL SELECT s.id, NULL FROM s
                  UNION ALL SELECT d.id, CASE WHEN on_failure <> 'wait' THEN 'dead' END FROM d
                  UNION ALL SELECT c.id, c.outcome FROM c) f
            ON CONFLICT DO NOTHING
            RETURNING job_id)
        SELECT coalesce(array_agg(m.id), '{}') INTO missing FROM unnest(missing) AS m (id) WHERE m.id NOT IN (SELECT n.job_id FROM noted n);
    END LOOP;
    IF cardinality(missing) > 0 THEN
        refused := 'no job';
        other_pool := missing[1];
        RAISE EXCEPTION USING ERRCODE = 'TN007';
    END IF;
    INSERT INTO tenure.awaited_end (tenant_id, awaiting_id) VALUES (tenant, id); -- all may have ended before
EXCEPTION WHEN SQLSTATE 'TN007' THEN
    id := NULL;
    duplicate := NULL;
    IF pool IS NOT NULL THEN
        RETURN;
    END IF;
    CASE refused
    WHEN 'no job' THEN
        RAISE EXCEPTION 'tenant % has no job % to start after', tenant, other_pool
            USING ERRCODE = 'TN007', HINT = 'It may have ended so long ago that it is not kept any more: add both in one transaction.';
    WHEN 'no batch' THEN
        RAISE EXCEPTION 'job % is not the completion job of an open batch of tenant %', other_pool, tenant
            USING ERRCODE = 'TN007', HINT = 'Jobs can be added to a batch until all of its jobs have ended.';
    ELSE
        PERFORM tenure.enqueue_raise('', tenant, refused, other_pool);
    END CASE;
END
$$;
-- +goose StatementEnd

-- As in 0017, for who executes it.
-- +goose StatementBegin
CREATE FUNCTION tenure.job_changeable(caller text, tenant text, privilege text) RETURNS boolean
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF tenant IS NULL OR NOT tenure.job_allowed(caller, tenant, privilege, false) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = tenant AND t.state IN ('moved', 'arriving')) THEN
        RAISE EXCEPTION 'tenant % is between two pools', tenant
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again when it has arrived.';
    END IF;
    RETURN true;
END
$$;
-- +goose StatementEnd

-- What tenure.cancel of 0024 did.
-- +goose StatementBegin
CREATE FUNCTION tenure.cancel_as(caller text, id bigint, keep boolean) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    gone tenure.completed_job;
BEGIN
    FOR look IN 1..3 LOOP -- it may move while it is looked for
        SELECT j.tenant_id INTO gone.tenant_id FROM (
            SELECT w.tenant_id FROM tenure.job w WHERE w.id = cancel_as.id
            UNION ALL SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = cancel_as.id
            UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = cancel_as.id
            UNION ALL SELECT s.tenant_id FROM tenure.suspended_job s WHERE s.id = cancel_as.id
            UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = cancel_as.id) j;
        IF NOT tenure.job_changeable(caller, gone.tenant_id, 'DELETE') THEN
            RETURN NULL;
        END IF;
        WITH t AS (DELETE FROM tenure.timer_job j WHERE j.id = cancel_as.id RETURNING *),
        x AS (DELETE FROM tenure.external_job j WHERE j.id = cancel_as.id RETURNING *),
        s AS (DELETE FROM tenure.suspended_job j WHERE j.id = cancel_as.id RETURNING *),
        d AS (DELETE FROM tenure.dead_letter_job j WHERE j.id = cancel_as.id RETURNING *),
        ended AS (
            SELECT t.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM t
            UNION ALL
            SELECT x.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM x
            UNION ALL
            SELECT s.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM s
            UNION ALL
            SELECT d.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM d),
        freed AS (
            DELETE FROM tenure.unique_job u USING ended e
            WHERE u.tenant_id = e.tenant_id AND u.key = e.unique_key AND u.job_id = e.id),
        heard AS (
            DELETE FROM tenure.cancel_request r USING ended e WHERE r.job_id = e.id),
        kept AS (
            INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
                tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
            SELECT e.id, created_at, now(), turn, priority, attempt, losses,
                tenant_id, queue, kind, 'cancelled', payload, meta, unique_key, correlation_id
            FROM ended e WHERE keep)
        SELECT e.id INTO gone.id FROM ended e;
        IF gone.id IS NOT NULL THEN
            PERFORM tenure.note_ends(ARRAY[gone.id], 'cancelled');
            RETURN 'cancelled';
        END IF;
        INSERT INTO tenure.cancel_request (job_id) SELECT j.id FROM tenure.job j WHERE j.id = cancel_as.id
        ON CONFLICT DO NOTHING;
        IF EXISTS (SELECT FROM tenure.job j WHERE j.id = cancel_as.id) THEN
            RETURN 'cancelling';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- What tenure.retry of 0022 did.
-- +goose StatementBegin
CREATE FUNCTION tenure.retry_as(caller text, id bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    tenant text;
    queue text;
    priority smallint;
BEGIN
    SELECT j.tenant_id INTO tenant FROM (
        SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = retry_as.id
        UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = retry_as.id AND x.due_at IS NOT NULL
        UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = retry_as.id) j;
    IF NOT tenure.job_changeable(caller, tenant, 'INSERT') THEN
        RETURN false;
    END IF;
    IF tenure.retry_external(retry_as.id) THEN
        RETURN true; -- its workers look by themselves
    END IF;
    WITH risen AS (DELETE FROM tenure.dead_letter_job d WHERE d.id = retry_as.id RETURNING *),
    hurried AS (DELETE FROM tenure.timer_job t WHERE t.id = retry_as.id RETURNING *),
    keyed AS (
        INSERT INTO tenure.unique_job (tenant_id, key, job_id)
        SELECT tenant_id, unique_key, risen.id FROM risen WHERE unique_key IS NOT NULL),
    unasked AS (
        DELETE FROM tenure.cancel_request r WHERE r.job_id = retry_as.id)
    INSERT INTO tenure.job (id, created_at, turn, timeout_ms, priority, attempt, max_attempts, losses,
        tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id)
    SELECT risen.id, created_at, turn + 1, timeout_ms, risen.priority, 0, max_attempts, 0,
        tenant_id, risen.queue, kind, payload, meta, exclusive_key, unique_key, correlation_id FROM risen
    UNION ALL
    SELECT hurried.id, created_at, turn + 1, timeout_ms, hurried.priority, attempt, max_attempts, losses,
        tenant_id, hurried.queue, kind, payload, meta, exclusive_key, unique_key, correlation_id FROM hurried
    RETURNING job.queue, job.priority INTO queue, priority;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM tenure.notify_holder(tenant, queue, priority, NULL);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- Does what is asked at the door, with the owner's rights. It works for that view alone, and nobody may make another
-- trigger of it: only there caller is who executes it.
-- +goose StatementBegin
CREATE FUNCTION tenure.answer() RETURNS trigger
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
-- +goose StatementEnd
CREATE TRIGGER answer INSTEAD OF INSERT ON tenure.door FOR EACH ROW EXECUTE FUNCTION tenure.answer();

-- Triggers can be switched off, as for replication: then nothing is done, which must not look like an answer.
-- +goose StatementBegin
CREATE FUNCTION tenure.unanswered() RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'triggers are switched off in this session, and one of them does what is asked of the ledger'
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run: SET session_replication_role = origin';
END
$$;
-- +goose StatementEnd

-- What everybody calls. They run as who calls them: whatever his path puts in their way he could do himself.
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
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.door AS d (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta,
        correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags)
    VALUES ('enqueue', enqueue.tenant, enqueue.kind, enqueue.payload, enqueue.queue, enqueue.priority,
        enqueue.run_at, enqueue.delay, enqueue.max_attempts, enqueue.meta, enqueue.correlation_id,
        enqueue.unique_key, enqueue.pool, enqueue.with_data, enqueue.exclusive_key, enqueue.timeout,
        enqueue.unique_for, enqueue.tags)
    RETURNING d.id, d.duplicate, d.refused, d.other_pool INTO id, duplicate, refused, other_pool;
    IF id IS NULL AND refused IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_external(
        tenant         text,
        topic          text,
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
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.door AS d (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta,
        correlation_id, unique_key, pool, with_data)
    VALUES ('enqueue_external', enqueue_external.tenant, enqueue_external.topic, enqueue_external.payload,
        enqueue_external.queue, enqueue_external.priority, enqueue_external.run_at, enqueue_external.delay,
        enqueue_external.max_attempts, enqueue_external.meta, enqueue_external.correlation_id,
        enqueue_external.unique_key, enqueue_external.pool, enqueue_external.with_data)
    RETURNING d.id, d.duplicate, d.refused, d.other_pool INTO id, duplicate, refused, other_pool;
    IF id IS NULL AND refused IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_linked(
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
        after_jobs     bigint[]    DEFAULT '{}',
        on_failure     text        DEFAULT 'wait',
        as_batch       boolean     DEFAULT false,
        in_batch       bigint      DEFAULT NULL,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.door AS d (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta,
        correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags, after_jobs,
        on_failure, as_batch, in_batch)
    VALUES ('enqueue_linked', enqueue_linked.tenant, enqueue_linked.kind, enqueue_linked.payload,
        enqueue_linked.queue, enqueue_linked.priority, enqueue_linked.run_at, enqueue_linked.delay,
        enqueue_linked.max_attempts, enqueue_linked.meta, enqueue_linked.correlation_id, enqueue_linked.unique_key,
        enqueue_linked.pool, enqueue_linked.with_data, enqueue_linked.exclusive_key, enqueue_linked.timeout,
        enqueue_linked.unique_for, enqueue_linked.tags, enqueue_linked.after_jobs, enqueue_linked.on_failure,
        enqueue_linked.as_batch, enqueue_linked.in_batch)
    RETURNING d.id, d.duplicate, d.refused, d.other_pool INTO id, duplicate, refused, other_pool;
    IF id IS NULL AND refused IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.cancel(id bigint, keep boolean DEFAULT true) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    INSERT INTO tenure.door AS d (call, job_id, keep) VALUES ('cancel', cancel.id, cancel.keep) RETURNING d.answer INTO said;
    IF said IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
    RETURN nullif(said, '');
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.retry(id bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    done boolean;
BEGIN
    INSERT INTO tenure.door AS d (call, job_id) VALUES ('retry', retry.id) RETURNING d.answer INTO done;
    IF done IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
    RETURN done;
END
$$;
-- +goose StatementEnd
-- As in 0024, for who executes it.
CREATE OR REPLACE VIEW tenure.job_status (id, tenant, kind, queue, state, cancelling, priority, attempt, max_attempts, created_at, due_at, error, unique_key, correlation_id)
    WITH (security_barrier) AS
SELECT s.id, s.tenant_id, s.kind, s.queue, s.state,
       s.state NOT IN ('dead', 'done', 'business_error', 'cancelled') AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = s.id),
       s.priority, s.attempt, s.max_attempts, s.created_at, s.due_at, s.error, s.unique_key, s.correlation_id
FROM (
    SELECT j.id, j.tenant_id, j.kind, j.queue,
           CASE WHEN c.turn IS NULL THEN 'waiting' WHEN c.started_at IS NULL THEN 'claimed' ELSE 'running' END AS state,
           j.priority, j.attempt, j.max_attempts, j.created_at, NULL::timestamptz AS due_at, NULL::text AS error, j.unique_key, j.correlation_id
    FROM tenure.job j
    LEFT JOIN (SELECT run.id, claim.turn, claim.started_at
               FROM tenure.claim CROSS JOIN LATERAL unnest(claim.job_ids) AS run (id)) c ON c.id = j.id AND c.turn = j.turn
    UNION ALL
    SELECT id, tenant_id, kind, queue, CASE WHEN due_at = tenure.never() THEN 'awaiting' WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END,
           priority, attempt, max_attempts, created_at, nullif(due_at, tenure.never()),
           (SELECT e.error FROM tenure.job_error e WHERE e.job_id = t.id ORDER BY e.at DESC LIMIT 1), unique_key, correlation_id
    FROM tenure.timer_job t
    UNION ALL
    SELECT id, tenant_id, kind, queue, CASE WHEN lock_expires_at > clock_timestamp() THEN 'locked' WHEN due_at IS NULL OR due_at <= clock_timestamp() THEN 'waiting'
                                            WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END,
           priority, attempt, max_attempts, created_at, due_at,
           CASE WHEN attempt > 0 THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = x.id ORDER BY e.at DESC LIMIT 1) END, unique_key, correlation_id
    FROM tenure.external_job x
    UNION ALL
    SELECT id, tenant_id, kind, queue, 'suspended', priority, attempt, max_attempts, created_at, nullif(due_at, tenure.never()), NULL, unique_key, correlation_id
    FROM tenure.suspended_job
    UNION ALL
    SELECT id, tenant_id, kind, queue, 'dead', priority, attempt, max_attempts, created_at, NULL, error, unique_key, correlation_id
    FROM tenure.dead_letter_job
    UNION ALL
    SELECT id, tenant_id, kind, queue, outcome, priority, attempt, NULL, created_at, NULL, NULL, unique_key, correlation_id
    FROM tenure.completed_job) s
WHERE (SELECT tenure.job_allowed(current_user, NULL, 'SELECT', true)) -- asked once
   OR tenure.job_allowed(current_user, s.tenant_id, 'SELECT', true);
-- As in 0015, but that no time is too far to be told: the holder looks again after a day.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.notify_holder(tenant text, queue text, priority integer, due timestamptz) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tenure_enqueued', CASE
        WHEN due IS NULL THEN jsonb_build_object('l', jsonb_build_array(jsonb_build_object('Tenant', tenant, 'Queue', queue, 'Priority', priority)))
        ELSE jsonb_build_object('d', greatest(1, ceil(extract(epoch FROM least(due, clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000)::bigint * 1000000)) END::text)
    FROM tenure.pool p WHERE p.notify;
END
$$;
-- +goose StatementEnd

-- The functions behind the door are executed by tenure.answer alone, under its path: one that each of them sets is
-- what they took longest for. So nobody else may execute them: PL/pgSQL looks types up by the path of the
-- call that is a session's first. Their owner is the ledger's, whoever migrates.
-- +goose StatementBegin
DO $$
DECLARE
    owner CONSTANT text := (SELECT quote_ident(pg_get_userbyid(p.proowner)) FROM pg_proc p WHERE p.oid = 'tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[])'::regprocedure);
    f regprocedure;
BEGIN
    FOR f IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'tenure'::regnamespace
          AND p.proname IN ('answer', 'enqueue_as', 'enqueue_external_as', 'enqueue_linked_as', 'cancel_as', 'retry_as', 'job_changeable', 'calls_itself', 'job_allowed',
                            'enqueue_fault', 'options_fault', 'enqueue_refusal', 'enqueue_raise', 'enqueue_key', 'take_key', 'index_tags', 'notify_holder', 'retry_external')
    LOOP
        IF f::text NOT LIKE '%.job_allowed(%' THEN
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
        END IF;
        IF f::text NOT LIKE ALL ('{%.job_allowed(%,%.answer(%}') THEN
            EXECUTE format('ALTER FUNCTION %s RESET search_path', f);
        END IF;
        IF owner <> quote_ident(current_user) THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO %s', f, owner);
        END IF;
    END LOOP;
    IF owner <> quote_ident(current_user) THEN
        EXECUTE 'ALTER VIEW tenure.door OWNER TO ' || owner;
    END IF;
END
$$;
-- +goose StatementEnd

DROP FUNCTION tenure.job_changeable(text, text), tenure.job_allowed(text, text), tenure.enqueue_allowed(text, text);

-- +goose Down
-- What this made stays: programs of before go on with it. The older steps drop these.
CREATE FUNCTION tenure.job_allowed(tenant text, privilege text) RETURNS boolean LANGUAGE sql AS $$ SELECT tenure.job_allowed(current_user, tenant, privilege, false) $$;
CREATE FUNCTION tenure.job_changeable(tenant text, privilege text) RETURNS boolean LANGUAGE sql AS $$ SELECT tenure.job_changeable(current_user, tenant, privilege) $$;
CREATE FUNCTION tenure.enqueue_allowed(caller text, tenant text) RETURNS boolean LANGUAGE sql AS $$ SELECT tenure.job_allowed(caller, tenant, 'ENQUEUE', false) $$;
