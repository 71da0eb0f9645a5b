-- What people and programs do to jobs that are there. A suspended job may say when it is to be
-- resumed; and any language looks at jobs, cancels and retries them by SQL. Adds a column to a
-- table in which nothing stands yet, and locks that for a moment; the rest is new. Programs of
-- before go on working; one that moves a tenant forgets that time, and the job stays suspended.

-- +goose Up
ALTER TABLE tenure.suspended_job ADD COLUMN resume_at timestamptz; -- null: when somebody says so
CREATE INDEX suspended_job_resume ON tenure.suspended_job (resume_at) WHERE resume_at IS NOT NULL;

-- Whether the caller may do to a tenant's jobs what takes this privilege on tenure.job: for every
-- tenant, or for none in particular (null), who has it; else for those whose role he has the rights
-- of. Who the caller is says the role that was set, or else the session's user; app.tenant_id
-- proves nothing, as everybody can set it. It is executed with the rights of the ledger's owner, as
-- tenants' roles may not read which roles there are.
-- +goose StatementBegin
CREATE FUNCTION tenure.job_allowed(tenant text, privilege text) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
BEGIN
    RETURN has_table_privilege(caller, 'tenure.job'::regclass, privilege) OR EXISTS (
        SELECT FROM pg_roles r
        WHERE r.rolname = coalesce((SELECT t.role_name FROM tenure.tenant_role t WHERE t.tenant_id = tenant),
                                   (SELECT replace(t.role_name, '{tenant}', tenant) FROM tenure.tenant_role t WHERE t.tenant_id = ''))
          AND pg_has_role(caller, r.oid, 'USAGE'));
END
$$;
-- +goose StatementEnd

-- The jobs that the caller may see. state: waiting, claimed (by a node that has not taken it over
-- yet), running, scheduled, retrying, suspended, dead, done, cancelled. cancelling: it is to be
-- cancelled. due_at is a timer's, also while that is suspended. A barrier, so that no function
-- of the caller's is shown other tenants' rows.
CREATE VIEW tenure.job_status (id, tenant, kind, queue, state, cancelling, priority, attempt, max_attempts, created_at, due_at, error, unique_key, correlation_id)
    WITH (security_barrier) AS
SELECT s.id, s.tenant_id, s.kind, s.queue, s.state,
       s.state NOT IN ('dead', 'done', 'cancelled') AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = s.id),
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

GRANT SELECT ON tenure.job_status TO PUBLIC; -- which shows everybody what is his

-- Whether the caller may change a job of a tenant now: whether it is his, and, as an error, whether
-- it is between two pools, when the other one may have it, too.
-- +goose StatementBegin
CREATE FUNCTION tenure.job_changeable(tenant text, privilege text) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR NOT tenure.job_allowed(tenant, privilege) THEN
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

-- Cancels an unfinished job of the caller's, in his transaction, and says 'cancelled' or
-- 'cancelling'; null: there is none. It takes no lock that others wait for: a job that waits or
-- runs gets a request, for the holder, who ends it when its turn comes, or for its node; one that
-- nobody may claim ends here. keep: it is kept among the finished ones, which is for ledgers with a
-- retention only.
-- +goose StatementBegin
CREATE FUNCTION tenure.cancel(id bigint, keep boolean DEFAULT true) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone tenure.completed_job;
BEGIN
    FOR look IN 1..3 LOOP -- it may move while it is looked for
        SELECT j.tenant_id INTO gone.tenant_id FROM (
            SELECT w.tenant_id FROM tenure.job w WHERE w.id = cancel.id
            UNION ALL SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = cancel.id
            UNION ALL SELECT s.tenant_id FROM tenure.suspended_job s WHERE s.id = cancel.id
            UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = cancel.id) j;
        IF NOT tenure.job_changeable(gone.tenant_id, 'DELETE') THEN
            RETURN NULL;
        END IF;
        WITH t AS (DELETE FROM tenure.timer_job j WHERE j.id = cancel.id RETURNING *),
        s AS (DELETE FROM tenure.suspended_job j WHERE j.id = cancel.id RETURNING *),
        d AS (DELETE FROM tenure.dead_letter_job j WHERE j.id = cancel.id RETURNING *),
        ended AS (
            SELECT t.id, created_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, unique_key, correlation_id FROM t
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

-- Makes a job of the caller's that is dead, or waits for its time, wait to run now, in his
-- transaction, as tenure jobs retry does, tells the holder, and says whether it did. 23505: an
-- unfinished job has its unique key.
-- +goose StatementBegin
CREATE FUNCTION tenure.retry(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant text;
    queue text;
    priority smallint;
BEGIN
    SELECT j.tenant_id INTO tenant FROM (
        SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = retry.id
        UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = retry.id) j;
    IF NOT tenure.job_changeable(tenant, 'INSERT') THEN
        RETURN false;
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

-- +goose Down
DROP FUNCTION tenure.retry(bigint);
DROP FUNCTION tenure.cancel(bigint, boolean);
DROP FUNCTION tenure.job_changeable(text, text);
DROP VIEW tenure.job_status;
DROP FUNCTION tenure.job_allowed(text, text);
DROP INDEX tenure.suspended_job_resume;
ALTER TABLE tenure.suspended_job DROP COLUMN resume_at;
