-- What lets a pool be used by three users: the one that migrates and owns the ledger, the
-- one that nodes and clients connect as, and tenants' roles, which get nothing but the
-- right to enqueue for their own tenant. docs/privileges.md says who may do what. Creates
-- new objects only, and locks nothing that exists.

-- +goose Up

-- Which role a tenant's transactions take. Written by clients and nodes, from their
-- configuration, and by `tenure migrate --grants`. The row of the tenant '' holds the
-- pattern for tenants that have no row, in which {tenant} stands for the id.
CREATE TABLE tenure.tenant_role (
    tenant_id text COLLATE "C" PRIMARY KEY,
    role_name text NOT NULL
);

-- The functions from here to tenure.enqueue are its parts, and executed with its rights. Each
-- has the path as well: PL/pgSQL looks types up when a session first calls a function, which
-- anybody may do with a path of his own.

-- Why this cannot be a job; null when it can.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_fault(tenant text, kind text, payload jsonb, queue text, priority integer, run_at timestamptz,
        delay interval, max_attempts integer, meta jsonb, correlation_id text, unique_key text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    longest CONSTANT integer := 1048576; -- of JSON, written out: numbers such as 1e300 unfold
    name    CONSTANT text := '^[A-Za-z0-9][A-Za-z0-9._:/-]*$'; -- a bound such as {0,127} in it takes milliseconds
BEGIN
    RETURN CASE
        WHEN tenant IS NULL OR octet_length(tenant) NOT BETWEEN 1 AND 128 OR tenant ~ '^\s|\s$|[[:cntrl:]]'
            THEN 'tenant: 1 to 128 bytes are allowed, without control characters and white space at either end'
        WHEN kind IS NULL OR octet_length(kind) > 128 OR kind COLLATE "C" !~ name
            THEN 'kind: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit'
        WHEN queue IS NULL OR octet_length(queue) > 128 OR queue COLLATE "C" !~ name
            THEN 'queue: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit'
        WHEN payload IS NULL OR octet_length(payload::text) > longest
            THEN 'payload: JSON is needed, of at most 1 MiB when it is written out; store the data elsewhere and pass its key'
        WHEN octet_length(meta::text) > longest THEN 'meta: JSON of at most 1 MiB when it is written out is allowed'
        WHEN priority IS NULL OR priority NOT BETWEEN -1000 AND 1000 THEN 'priority: -1000 to 1000 are allowed'
        WHEN max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts: 1 to 1000 are allowed'
        WHEN octet_length(correlation_id) > 1024 THEN 'correlation_id: at most 1024 bytes are allowed'
        WHEN octet_length(unique_key) NOT BETWEEN 1 AND 1024 THEN 'unique_key: 1 to 1024 bytes are allowed'
        WHEN run_at IS NOT NULL AND delay IS NOT NULL THEN 'run_at and delay: only one of them is allowed'
        WHEN run_at < '1969-12-31 00:00+00' OR run_at > '10000-01-02 00:00+00' THEN 'run_at: years 1970 to 9999 are allowed'
        WHEN delay NOT BETWEEN interval '0' AND interval '3660 days' THEN 'delay: 0 to 3660 days are allowed'
    END;
END
$$;
-- +goose StatementEnd

-- Whether a role may enqueue for a tenant: for every one, who may insert into column
-- tenant_id of tenure.job; else for those whose role it has the rights of.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_allowed(caller text, tenant text) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN has_column_privilege(caller, 'tenure.job'::regclass, 'tenant_id', 'INSERT') OR EXISTS (
        SELECT FROM pg_roles r
        WHERE r.rolname = coalesce((SELECT t.role_name FROM tenure.tenant_role t WHERE t.tenant_id = tenant),
                                   (SELECT replace(t.role_name, '{tenant}', tenant) FROM tenure.tenant_role t WHERE t.tenant_id = ''))
          AND pg_has_role(caller, r.oid, 'USAGE'));
END
$$;
-- +goose StatementEnd

-- Why a job of a tenant is not taken in; null when it is. pool and with_data as for
-- tenure.enqueue.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_refusal(caller text, tenant text, keyed boolean, pool integer, with_data boolean,
        OUT refused text, OUT other_pool text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place record;
BEGIN
    SELECT p.number, t.state, t.other_pool, t.held INTO place
    FROM tenure.pool p LEFT JOIN tenure.tenant t ON t.tenant_id = tenant;
    refused := CASE
        WHEN place.number IS NULL OR pool <> place.number THEN 'wrong pool'
        WHEN NOT tenure.enqueue_allowed(caller, tenant) THEN 'forbidden'
        WHEN place.state = 'moved' THEN 'moved'
        WHEN place.state = 'moving' AND place.held AND with_data THEN 'held'
        WHEN place.state = 'arriving' AND keyed THEN 'arriving' -- not all its keys are here yet
    END;
    IF refused IN ('moved', 'held') THEN
        other_pool := place.other_pool;
    END IF;
END
$$;
-- +goose StatementEnd

-- Raises a refusal, for callers who do not look at the column.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_raise(caller text, tenant text, refused text, other_pool text) RETURNS void
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
    ELSE
        RAISE EXCEPTION 'the unique key was taken by a transaction that cannot be seen yet'
            USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
    END CASE;
END
$$;
-- +goose StatementEnd

-- Takes a tenant's unique key for a new job, or finds the unfinished one that has it. No
-- id: others took the key and gave it up all the while. Unless the transaction is
-- repeatable read each statement has a snapshot of its own, so that a job which the insert
-- met, and waited for, is seen a moment later.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_key(tenant text, unique_key text, OUT id bigint, OUT duplicate boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    FOR try IN 1..10 LOOP
        duplicate := false;
        INSERT INTO tenure.unique_job AS u (tenant_id, key, job_id) VALUES (tenant, unique_key, nextval('tenure.job_id'))
        ON CONFLICT DO NOTHING RETURNING u.job_id INTO id;
        EXIT WHEN id IS NOT NULL;
        duplicate := true;
        SELECT u.job_id INTO id FROM tenure.unique_job u WHERE u.tenant_id = tenant AND u.key = unique_key;
        EXIT WHEN id IS NOT NULL;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Adds one job in the caller's transaction. It is executed with the rights of the ledger's
-- owner, so that a tenant's role needs none, and checks by itself for whom the caller may
-- enqueue. Who the caller is says the role that was set, or else the session's user;
-- app.tenant_id proves nothing, as everybody can set it. The path keeps every operator and
-- function in pg_catalog, so that nothing that a caller made is executed with these rights.
--
-- pool and with_data are for Tenure's own clients. pool is the number of the pool that they
-- take this database for: with it a refusal comes back in refused, and in other_pool where
-- the tenant is, instead of failing the caller's transaction. with_data: the transaction may
-- write the tenant's own data, too, which may not be while that is being copied.
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
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    fault  CONSTANT text := tenure.enqueue_fault(tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key);
    due    CONSTANT timestamptz := coalesce(run_at, clock_timestamp() + delay);
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'enqueue: %', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
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

-- Makes the partition for the finished jobs of a day, in UTC, with the rights of the
-- ledger's owner, which alone may do that.
-- +goose StatementBegin
CREATE FUNCTION tenure.make_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE IF NOT EXISTS tenure.%I PARTITION OF tenure.completed_job FOR VALUES FROM (%L) TO (%L)',
        to_char(day, '"completed_job_"YYYYMMDD'), to_char(day, 'YYYY-MM-DD" 00:00+00"'), to_char(day + 1, 'YYYY-MM-DD" 00:00+00"'));
END
$$;
-- +goose StatementEnd

-- Drops the partition for the finished jobs of a day, if it is there.
-- +goose StatementBegin
CREATE FUNCTION tenure.drop_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS tenure.%I', to_char(day, '"completed_job_"YYYYMMDD'));
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION tenure.make_day(date), tenure.drop_day(date) FROM PUBLIC;

-- Thousands of tenants' roles would make access lists that are slow to read and to change.
-- The schema shows names only, and the function decides by itself.
GRANT USAGE ON SCHEMA tenure TO PUBLIC;

-- +goose Down
REVOKE USAGE ON SCHEMA tenure FROM PUBLIC;
DROP FUNCTION tenure.drop_day(date);
DROP FUNCTION tenure.make_day(date);
DROP FUNCTION tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean);
DROP FUNCTION tenure.enqueue_key(text, text);
DROP FUNCTION tenure.enqueue_raise(text, text, text, text);
DROP FUNCTION tenure.enqueue_refusal(text, text, boolean, integer, boolean);
DROP FUNCTION tenure.enqueue_allowed(text, text);
DROP FUNCTION tenure.enqueue_fault(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text);
DROP TABLE tenure.tenant_role;
