-- Jobs for workers outside the cluster, which lock them one by one: table external_job, which is
-- there since 0001 and in which nothing stands yet, so that nobody waits for what is changed of it.
-- And how many jobs of a tenant may wait: columns of the small table of tenants, and two functions
-- that are part of enqueuing.
-- Programs of before go on working: they do not see these jobs, but for moving them with their
-- tenant, when a lock is forgotten, and so is a time to wait for.

-- +goose Up

-- A job's topic is its kind. It can be acquired when both times are null or have passed.
ALTER TABLE tenure.external_job
    ADD COLUMN IF NOT EXISTS due_at      timestamptz, -- it was put off until then
    ADD COLUMN IF NOT EXISTS acquired_at timestamptz; -- by whom it is locked now
ALTER TABLE tenure.external_job SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);

-- A row is in one of these: it waits, is locked, or was put off. The index of before has no tenant.
DROP INDEX tenure.external_job_lane;
CREATE INDEX external_job_waiting ON tenure.external_job (kind, tenant_id, priority DESC, position) WHERE lock_expires_at IS NULL AND due_at IS NULL;
CREATE INDEX external_job_locked ON tenure.external_job (kind, lock_expires_at) WHERE lock_expires_at IS NOT NULL;
CREATE INDEX external_job_due ON tenure.external_job (kind, due_at) WHERE due_at IS NOT NULL;
-- By which the locked ones of a tenant are counted that may have so many.
CREATE INDEX external_job_locked_of ON tenure.external_job (tenant_id) WHERE lock_expires_at IS NOT NULL;

-- As tenure.enqueue, for workers outside the cluster: kind is the topic that they ask for.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_external(
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
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
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

-- Who may enqueue may do that, too: all others may not, as for tenure.enqueue.
-- +goose StatementBegin
DO $$
DECLARE
    before CONSTANT oid := (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname = 'enqueue');
    now    CONSTANT regprocedure := 'tenure.enqueue_external(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean)';
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
END
$$;
-- +goose StatementEnd

-- The part of tenure.retry that is about jobs for external workers: one that is dead, or was put off,
-- waits now.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.retry_external(id bigint) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved bigint;
BEGIN
    WITH risen AS (DELETE FROM tenure.dead_letter_job d WHERE d.id = retry_external.id AND d.origin = 'external_job' RETURNING *),
    keyed AS (
        INSERT INTO tenure.unique_job (tenant_id, key, job_id)
        SELECT tenant_id, unique_key, risen.id FROM risen WHERE unique_key IS NOT NULL),
    hurried AS (
        UPDATE tenure.external_job x SET due_at = NULL, turn = turn + 1 WHERE x.id = retry_external.id AND x.due_at IS NOT NULL
        RETURNING x.id),
    waits AS (
        INSERT INTO tenure.external_job (id, created_at, turn, timeout_ms, priority, attempt, max_attempts, losses,
            tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, due_at)
        SELECT risen.id, created_at, turn + 1, timeout_ms, risen.priority, 0, max_attempts, 0,
            tenant_id, risen.queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, NULL FROM risen
        RETURNING external_job.id)
    SELECT w.id INTO moved FROM (SELECT waits.id FROM waits UNION ALL SELECT hurried.id FROM hurried) w;
    RETURN moved IS NOT NULL;
END
$$;
-- +goose StatementEnd

-- As in 0017, with these jobs.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.retry(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant text;
    queue text;
    priority smallint;
BEGIN
    SELECT j.tenant_id INTO tenant FROM (
        SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = retry.id
        UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = retry.id AND x.due_at IS NOT NULL
        UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = retry.id) j;
    IF NOT tenure.job_changeable(tenant, 'INSERT') THEN
        RETURN false;
    END IF;
    IF tenure.retry_external(retry.id) THEN
        RETURN true; -- its workers look by themselves
    END IF;
    WITH risen AS (DELETE FROM tenure.dead_letter_job d WHERE d.id = retry.id RETURNING *),
    hurried AS (DELETE FROM tenure.timer_job t WHERE t.id = retry.id RETURNING *),
    keyed AS (
        INSERT INTO tenure.unique_job (tenant_id, key, job_id)
        SELECT tenant_id, unique_key, risen.id FROM risen WHERE unique_key IS NOT NULL),
    unasked AS (
        DELETE FROM tenure.cancel_request r WHERE r.job_id = retry.id)
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

-- As in 0017, with these jobs: one that is locked ends, too, and its worker finds that out.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.cancel(id bigint, keep boolean DEFAULT true) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone tenure.completed_job;
BEGIN
    FOR look IN 1..3 LOOP -- it may move while it is looked for
        SELECT j.tenant_id INTO gone.tenant_id FROM (
            SELECT w.tenant_id FROM tenure.job w WHERE w.id = cancel.id
            UNION ALL SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = cancel.id
            UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = cancel.id
            UNION ALL SELECT s.tenant_id FROM tenure.suspended_job s WHERE s.id = cancel.id
            UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = cancel.id) j;
        IF NOT tenure.job_changeable(gone.tenant_id, 'DELETE') THEN
            RETURN NULL;
        END IF;
        WITH t AS (DELETE FROM tenure.timer_job j WHERE j.id = cancel.id RETURNING *),
        x AS (DELETE FROM tenure.external_job j WHERE j.id = cancel.id RETURNING *),
        s AS (DELETE FROM tenure.suspended_job j WHERE j.id = cancel.id RETURNING *),
        d AS (DELETE FROM tenure.dead_letter_job j WHERE j.id = cancel.id RETURNING *),
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
            RETURN 'cancelled';
        END IF;
        INSERT INTO tenure.cancel_request (job_id) SELECT j.id FROM tenure.job j WHERE j.id = cancel.id
        ON CONFLICT DO NOTHING;
        IF EXISTS (SELECT FROM tenure.job j WHERE j.id = cancel.id) THEN
            RETURN 'cancelling';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- As in 0017, with these jobs, of which a locked one is with a worker.
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
    SELECT id, tenant_id, kind, queue, CASE attempt WHEN 0 THEN 'scheduled' ELSE 'retrying' END,
           priority, attempt, max_attempts, created_at, due_at,
           (SELECT e.error FROM tenure.job_error e WHERE e.job_id = t.id ORDER BY e.at DESC LIMIT 1), unique_key, correlation_id
    FROM tenure.timer_job t
    UNION ALL
    SELECT id, tenant_id, kind, queue, CASE WHEN lock_expires_at > clock_timestamp() THEN 'locked' WHEN due_at IS NULL OR due_at <= clock_timestamp() THEN 'waiting'
                                            WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END,
           priority, attempt, max_attempts, created_at, due_at,
           CASE WHEN attempt > 0 THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = x.id ORDER BY e.at DESC LIMIT 1) END, unique_key, correlation_id
    FROM tenure.external_job x
    UNION ALL
    SELECT id, tenant_id, kind, queue, 'suspended', priority, attempt, max_attempts, created_at, due_at, NULL, unique_key, correlation_id
    FROM tenure.suspended_job
    UNION ALL
    SELECT id, tenant_id, kind, queue, 'dead', priority, attempt, max_attempts, created_at, NULL, error, unique_key, correlation_id
    FROM tenure.dead_letter_job
    UNION ALL
    SELECT id, tenant_id, kind, queue, outcome, priority, attempt, NULL, created_at, NULL, NULL, unique_key, correlation_id
    FROM tenure.completed_job) s
WHERE (SELECT tenure.job_allowed(NULL, 'SELECT')) -- asked once
   OR tenure.job_allowed(s.tenant_id, 'SELECT');

-- How many jobs of a tenant may wait, null: any number, and when the holder of the acquire lock has seen
-- last that so many do. That counts for a minute: a holder that knows nothing of it says nothing more.
ALTER TABLE tenure.tenant
    ADD COLUMN IF NOT EXISTS max_waiting   integer CHECK (max_waiting > 0),
    ADD COLUMN IF NOT EXISTS over_quota_at timestamptz;

-- As in 0006, and heeds that.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_refusal(caller text, tenant text, keyed boolean, pool integer, with_data boolean,
        OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place record;
BEGIN
    SELECT p.number, t.state, t.other_pool, t.held, t.max_waiting, t.over_quota_at INTO place
    FROM tenure.pool p LEFT JOIN tenure.tenant t ON t.tenant_id = tenant;
    refused := CASE
        WHEN place.number IS NULL OR pool <> place.number THEN 'wrong pool'
        WHEN NOT tenure.enqueue_allowed(caller, tenant) THEN 'forbidden'
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

-- As in 0006, and raises that.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_raise(caller text, tenant text, refused text, other_pool text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE refused
    WHEN 'wrong pool' THEN
        RAISE EXCEPTION 'the ledger in database % has no number yet', current_database()
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run: tenure migrate';
    WHEN 'forbidden' THEN
        RAISE EXCEPTION 'role % may not enqueue for tenant %', caller, tenant
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Which role is a tenant''s stands in tenure.tenant_role, which tenure migrate --grants fills from the configuration.';
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

-- +goose Down
UPDATE tenure.tenant SET over_quota_at = NULL, max_waiting = NULL; -- enqueuing goes on looking at them
-- The columns stay, and so do tenure.cancel, tenure.retry and the view: they know these jobs, of
-- which there are no more then.
DROP FUNCTION tenure.enqueue_external(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean);
DROP INDEX tenure.external_job_locked_of;
DROP INDEX tenure.external_job_due;
DROP INDEX tenure.external_job_locked;
DROP INDEX tenure.external_job_waiting;
CREATE INDEX external_job_lane ON tenure.external_job (kind, priority DESC, position);
ALTER TABLE tenure.external_job RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
