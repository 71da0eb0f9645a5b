-- The ledger of one pool: every table a job can stand in, the acquire lock, and
-- the sessions and claims that protect running jobs. Tables are split by state so
-- that the acquire query needs no condition on it. Creates new objects only and
-- locks nothing that exists.

-- +goose Up

-- Who this database is among the pools of the cluster. Written by `tenure migrate`.
CREATE TABLE tenure.pool (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    number   integer NOT NULL CHECK (number BETWEEN 1 AND 65535),
    name     text    NOT NULL
);

-- One sequence for all job tables. `tenure migrate` puts the pool's number into
-- the bits above the 47th, so that ids stay unique when a tenant moves.
CREATE SEQUENCE tenure.job_id;

-- The queue order. CACHE must stay 1: a session that hands out numbers from an old
-- block would insert behind cursors that have long gone by.
CREATE SEQUENCE tenure.job_position CACHE 1;

-- Waiting or claimed jobs. Rows are inserted and deleted, hardly ever updated:
-- a claim is a row in tenure.claim. Text columns collate "C", for comparisons by
-- memcmp and an order that no change of locale can shift.
CREATE TABLE tenure.job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    position       bigint      NOT NULL DEFAULT nextval('tenure.job_position'),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT 0,
    timeout_ms     integer,                       -- null: the kind's, else the node's
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0, -- runs that failed so far
    max_attempts   smallint,                      -- null: the kind's, else the node's
    losses         smallint    NOT NULL DEFAULT 0, -- runs whose node was lost
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);

-- A lane is one (queue, tenant, priority); each is read in order of position.
CREATE INDEX job_lane ON tenure.job (queue, tenant_id, priority, position);

-- Due later: delayed jobs, retries waiting out their back-off, repeating timers.
CREATE TABLE tenure.timer_job (
    LIKE tenure.job INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    due_at timestamptz NOT NULL,
    repeat text,
    end_at timestamptz,
    PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tenure.timer_job DROP COLUMN position;
CREATE INDEX timer_job_due ON tenure.timer_job (due_at);

-- For workers outside the cluster: locked row by row, with owner and expiry.
CREATE TABLE tenure.external_job (
    LIKE tenure.job INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    locked_by       text,
    lock_expires_at timestamptz,
    PRIMARY KEY (id)
);
CREATE INDEX external_job_lane ON tenure.external_job (kind, priority DESC, position);

-- Audit work, apart so that it cannot starve business jobs.
CREATE TABLE tenure.history_job (
    LIKE tenure.job INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    PRIMARY KEY (id)
);
CREATE INDEX history_job_lane ON tenure.history_job (queue, tenant_id, priority, position);

-- Not runnable until somebody resumes them; origin says where they go back to.
CREATE TABLE tenure.suspended_job (
    LIKE tenure.job INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    origin       text        NOT NULL,
    due_at       timestamptz,
    repeat       text,
    end_at       timestamptz,
    suspended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (id)
);
ALTER TABLE tenure.suspended_job DROP COLUMN position;

-- Not runnable until somebody retries them.
CREATE TABLE tenure.dead_letter_job (
    LIKE tenure.job INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    origin  text        NOT NULL,
    error   text        NOT NULL,
    died_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (id)
);
ALTER TABLE tenure.dead_letter_job DROP COLUMN position;
CREATE INDEX dead_letter_job_died ON tenure.dead_letter_job (died_at);

-- Finished jobs, kept for a while; days are dropped, not deleted. The default
-- partition catches what finishes while no day's partition exists, so that
-- finishing a job never fails for want of one. BRIN, because rows arrive in order
-- and a B-tree would cost as much as the insert.
CREATE TABLE tenure.completed_job (
    id             bigint      NOT NULL,
    created_at     timestamptz NOT NULL,
    finished_at    timestamptz NOT NULL,
    turn           integer     NOT NULL,
    priority       smallint    NOT NULL,
    attempt        smallint    NOT NULL, -- runs, the last one included
    losses         smallint    NOT NULL,
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    outcome        text COLLATE "C" NOT NULL, -- done, cancelled
    payload        jsonb       NOT NULL,
    meta           jsonb,
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C"
) PARTITION BY RANGE (finished_at);
CREATE INDEX completed_job_id ON tenure.completed_job USING brin (id) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX completed_job_finished ON tenure.completed_job USING brin (finished_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE TABLE tenure.completed_job_rest PARTITION OF tenure.completed_job DEFAULT;

-- One row per failed run.
CREATE TABLE tenure.job_error (
    job_id  bigint      NOT NULL,
    attempt smallint    NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    node    text        NOT NULL,
    error   text        NOT NULL,
    stack   text
);
CREATE INDEX job_error_job ON tenure.job_error (job_id);
CREATE INDEX job_error_at ON tenure.job_error USING brin (at);

-- A tenant's unfinished jobs with a unique key, over all tables they can stand in.
CREATE TABLE tenure.unique_job (
    tenant_id text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    job_id    bigint NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

-- The batches now in flight; the jobs of one claim have one turn.
CREATE TABLE tenure.claim (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid        NOT NULL,
    turn       integer     NOT NULL,
    job_ids    bigint[]    NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- Somebody wants a claimed job ended; its session sees it with its next heartbeat.
CREATE TABLE tenure.cancel_request (
    job_id       bigint      PRIMARY KEY,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The acquire lock. LOGGED, because an epoch that fell back to 0 after a crash
-- would let an old holder in again. The unique (name, epoch) makes epoch a key
-- column: changing it then conflicts with FOR KEY SHARE, renewing does not.
-- removals counts the times that somebody other than the holder took waiting jobs
-- out of tenure.job: a claim names the count it read its jobs at.
CREATE TABLE tenure.acquire_lock (
    name           text        PRIMARY KEY,
    epoch          bigint      NOT NULL DEFAULT 0,
    holder         uuid,                     -- a session
    holder_member  text,                     -- its name in gossip
    taken_at       timestamptz,
    renewed_at     timestamptz NOT NULL DEFAULT to_timestamp(0),
    expires_at     timestamptz NOT NULL DEFAULT to_timestamp(0),
    renew_seq      bigint      NOT NULL DEFAULT 0,
    next_holder    text,                     -- member the lock was offered to
    reserved_until timestamptz NOT NULL DEFAULT to_timestamp(0),
    paused         boolean     NOT NULL DEFAULT false,
    removals       bigint      NOT NULL DEFAULT 0,
    UNIQUE (name, epoch)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
INSERT INTO tenure.acquire_lock (name) VALUES ('acquire');

-- One row per process that works on this pool; it protects that process' claims.
CREATE TABLE tenure.node_session (
    session_id  uuid        PRIMARY KEY,
    node        text        NOT NULL,
    member      text        NOT NULL,
    gossip_addr text        NOT NULL DEFAULT '',
    version     text        NOT NULL DEFAULT '',
    kinds       text[]      NOT NULL DEFAULT '{}',
    state       text        NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'left', 'dead')),
    hb_seq      bigint      NOT NULL DEFAULT 0,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Cron and interval definitions.
CREATE TABLE tenure.schedule (
    name      text        PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    payload   jsonb       NOT NULL DEFAULT '{}',
    spec      text        NOT NULL,
    time_zone text        NOT NULL DEFAULT 'UTC',
    paused    boolean     NOT NULL DEFAULT false,
    next_at   timestamptz,
    last_at   timestamptz
);

-- The tenants that live here.
CREATE TABLE tenure.tenant (
    tenant_id   text COLLATE "C" PRIMARY KEY,
    schema_name text     NOT NULL,
    role_name   text,
    state       text     NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'suspended', 'moving')),
    weight      integer  NOT NULL DEFAULT 1 CHECK (weight > 0),
    max_running integer
);

-- Ends the transaction it is called in when the statement before it touched no row.
-- +goose StatementBegin
CREATE FUNCTION tenure.require_claim(standing bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
    IF standing = 0 THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
END
$$;
-- +goose StatementEnd

-- Makes the running transaction a tenant's: its schema is searched first and
-- pg_temp last, its role is taken (none when empty) and app.tenant_id is set, all
-- until the transaction ends. A schema that is missing or closed to the role is an
-- error: Postgres would silently search on. No SET search_path on this function:
-- leaving it would undo its own work.
-- +goose StatementBegin
CREATE FUNCTION tenure.enter_tenant(schema_name text, role_name text, tenant_id text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.to_regnamespace(pg_catalog.quote_ident(schema_name)) IS NULL THEN
        RAISE EXCEPTION 'tenant % has no schema % in database %', tenant_id, schema_name, pg_catalog.current_database()
            USING ERRCODE = 'TN002', HINT = 'Create the schema, or correct where the tenant is routed to.';
    END IF;
    PERFORM pg_catalog.set_config('role', CASE WHEN role_name OPERATOR(pg_catalog.=) '' THEN 'none' ELSE role_name END, true);
    IF NOT pg_catalog.has_schema_privilege(schema_name, 'USAGE') THEN
        RAISE EXCEPTION 'role % may not use schema % of tenant %', CURRENT_USER, schema_name, tenant_id
            USING ERRCODE = 'TN002', HINT = 'GRANT USAGE ON SCHEMA to that role.';
    END IF;
    PERFORM pg_catalog.set_config('search_path', pg_catalog.quote_ident(schema_name) OPERATOR(pg_catalog.||) ', pg_temp', true);
    PERFORM pg_catalog.set_config('app.tenant_id', tenant_id, true);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP SCHEMA tenure CASCADE;
CREATE SCHEMA tenure;
