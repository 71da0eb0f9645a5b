-- The ledger of one pool, as version 56 has it: every table that a job can stand in, the acquire lock, the
-- sessions and claims that protect running jobs, and what operators say of all that. An empty database begins with
-- it; what later versions changed stands in the numbered files beside it, what the functions do in ../functions, which
-- are made before, and the whole, as it is now, in ../schema.sql. Text by which rows are found collates "C", for
-- comparisons by memcmp and an order that no change of locale can shift.

---------------------------------------------------------------------------------------------------------------------
-- The pool and its lock
---------------------------------------------------------------------------------------------------------------------

-- Who this database is among the pools of the cluster. Written by `tenure migrate`.
CREATE TABLE tenure.pool (
    only_row              boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    number                integer NOT NULL CHECK (number BETWEEN 1 AND 65535),
    name                  text    NOT NULL,
    oldest_program        integer NOT NULL DEFAULT 55,    -- the oldest ledger version whose programs may work on this ledger: see docs/upgrades.md
    storage_keeps_commits boolean NOT NULL DEFAULT false, -- set by whoever operates the server, and only where its timeline cannot be read: its storage loses no commit when another server takes over, and from then on refuses the writes of the one before
    notify                boolean NOT NULL DEFAULT true   -- the lock's holder hears at once of jobs that SQL enqueues; a transaction that has notified commits alone, one after the other in the whole server
);

-- The acquire lock. LOGGED, because an epoch that fell back to 0 after a crash
-- would let an old holder in again. The unique (name, epoch) makes epoch a key
-- column: changing it then conflicts with FOR KEY SHARE, renewing does not.
CREATE TABLE tenure.acquire_lock (
    name               text        PRIMARY KEY,
    epoch              bigint      NOT NULL DEFAULT 0,
    holder             uuid,                                             -- a session
    holder_member      text,                                             -- its name in gossip
    taken_at           timestamptz,
    renewed_at         timestamptz NOT NULL DEFAULT to_timestamp(0),
    expires_at         timestamptz NOT NULL DEFAULT to_timestamp(0),
    renew_seq          bigint      NOT NULL DEFAULT 0,
    next_holder        text,                                             -- member the lock was offered to
    reserved_until     timestamptz NOT NULL DEFAULT to_timestamp(0),
    paused             boolean     NOT NULL DEFAULT false,
    removals           bigint      NOT NULL DEFAULT 0,                   -- how often somebody other than the holder took waiting jobs out of tenure.job: a claim names the count it read its jobs at
    limit_changes      bigint      NOT NULL DEFAULT 0,                   -- how often limits were changed: what was read under others is void
    bottom             bigint      NOT NULL DEFAULT 0,                   -- up to which position no waiting job stands, or can appear, as a holder has found out: its successor need not read what is dead there
    bottom_incarnation integer     NOT NULL DEFAULT 0,                   -- the incarnation of the database in which that is so
    UNIQUE (name, epoch),
    CONSTRAINT acquire_lock_time CHECK (isfinite(taken_at) AND isfinite(renewed_at) AND isfinite(expires_at) AND isfinite(reserved_until))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
INSERT INTO tenure.acquire_lock (name) VALUES ('acquire');

-- Who took the acquire lock and released it, and when the pool was frozen.
CREATE TABLE tenure.lock_change (
    epoch  bigint      NOT NULL,
    change text COLLATE "C" NOT NULL CHECK (change IN ('taken', 'released', 'frozen', 'thawed')),
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    node   text,                -- who took or released it; null: frozen or thawed
    member text,
    PRIMARY KEY (epoch, change) -- of those that come again within an epoch the last one counts
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The text of which functions is in force. Written by `tenure migrate`, which makes a function again when its file is another.
CREATE TABLE tenure.function_text (
    name   text COLLATE "C" PRIMARY KEY, -- of the file
    digest text NOT NULL
);

---------------------------------------------------------------------------------------------------------------------
-- Incarnations: what a report of a run is fenced by, (id, turn), is never given out twice, whatever made the sequences fall back
---------------------------------------------------------------------------------------------------------------------

-- One life of the database, and the first turn of every job that is made in it.
-- UNLOGGED, because Postgres itself then empties it whenever what was committed last may
-- be gone: in crash recovery, at the promotion of a standby, in a base backup. Its row
-- also names what is another in a copy and after a restart; a restored row has another
-- xmin than the one it says it was written by. A row that does not fit is as good as
-- none. No key: a restore that adds a row must not fail because of it.
CREATE UNLOGGED TABLE tenure.incarnation (
    first_turn     integer     NOT NULL,
    written_by     xid         NOT NULL,
    server_started timestamptz NOT NULL,
    file           text        NOT NULL, -- of this table, in the directory of this database
    began_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The last incarnation's moment, in 32nds of a second since 2026: turns are raised more
-- slowly than that. Only the net under the clock, for when that is set back: it falls back
-- where other sequences do.
CREATE SEQUENCE tenure.incarnation_moment MINVALUE 0 START 0;

-- The incarnation that is true of this database as it runs now; no row: none has begun.
CREATE VIEW tenure.present_incarnation AS
SELECT first_turn FROM tenure.incarnation
WHERE server_started = pg_postmaster_start_time() AND xmin = written_by
  AND file = pg_relation_filepath('tenure.incarnation');

---------------------------------------------------------------------------------------------------------------------
-- Sessions and claims
---------------------------------------------------------------------------------------------------------------------

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
    expires_at  timestamptz NOT NULL,
    per_tenant  integer, -- jobs of one tenant that the node runs at a time; null: as many as it has workers, or unknown
    CONSTRAINT node_session_time CHECK (isfinite(started_at) AND isfinite(last_seen) AND isfinite(expires_at))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- The batches now in flight; the jobs of one claim have one turn.
CREATE TABLE tenure.claim (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid        NOT NULL,
    turn       integer     NOT NULL,
    job_ids    bigint[]    NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    given      boolean     NOT NULL DEFAULT false -- by the lock's holder to another node's session, which sets started_at when it takes the claim over
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Somebody wants a claimed job ended; its session sees it with its next heartbeat.
CREATE TABLE tenure.cancel_request (
    job_id       bigint      PRIMARY KEY,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

---------------------------------------------------------------------------------------------------------------------
-- Unfinished jobs: that wait, have a time, are with external workers, or are suspended. Tables are split by state so
-- that the acquire query needs no condition on it.
---------------------------------------------------------------------------------------------------------------------

-- One sequence for all job tables. `tenure migrate` puts the pool's number into
-- the bits above the 47th, so that ids stay unique when a tenant moves.
CREATE SEQUENCE tenure.job_id;

-- The queue order. CACHE must stay 1: a session that hands out numbers from an old
-- block would insert behind cursors that have long gone by.
CREATE SEQUENCE tenure.job_position CACHE 1;

-- Waiting or claimed jobs. Rows are inserted and deleted, hardly ever updated: a claim is a row in tenure.claim.
--
-- Whoever has drawn a position has a transaction id already: an INSERT alone would draw it first and
-- get its id with the row, after a payload that may take long to work out. So whoever gets
-- an id after the last position was read has a higher position than that. An expression
-- and not a function of ours, which costs ten times as much.
CREATE TABLE tenure.job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    position       bigint      NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tenure.job_position') END,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms     integer,                        -- null: the kind's, else the node's
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0, -- runs that failed so far
    max_attempts   smallint,                       -- null: the kind's, else the node's
    losses         smallint    NOT NULL DEFAULT 0, -- runs whose node was lost
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,                          -- its tags are there, too, under tenure:tags
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C",
    ready_at       timestamptz DEFAULT clock_timestamp() -- since when it could start: since it came here, also from the timers
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
-- A lane is one (queue, tenant, priority); each is read in order of position.
CREATE INDEX job_lane ON tenure.job (queue, tenant_id, priority, position);
-- The waiting jobs of a key in order: one that is tried again stands before those that were behind it.
CREATE INDEX job_exclusive ON tenure.job (tenant_id, exclusive_key, (attempt = 0), position) WHERE exclusive_key IS NOT NULL;
CREATE INDEX job_correlation ON tenure.job (correlation_id) WHERE correlation_id IS NOT NULL;

-- Due later: delayed jobs, retries waiting out their back-off, jobs that await others (at tenure.never()).
CREATE TABLE tenure.timer_job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms     integer,
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0,
    max_attempts   smallint,
    losses         smallint    NOT NULL DEFAULT 0,
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C",
    due_at         timestamptz NOT NULL,
    repeat         text,
    end_at         timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX timer_job_due ON tenure.timer_job (due_at);
-- Timers are fired in shares by tenant, so that one with a million of them due at midnight does
-- not hold up the others': see queries/timer_share.sql.
CREATE INDEX timer_job_tenant ON tenure.timer_job (tenant_id, due_at);
-- The keys whose jobs wait until another of theirs is tried again.
CREATE INDEX timer_job_exclusive ON tenure.timer_job (tenant_id, exclusive_key) WHERE exclusive_key IS NOT NULL AND attempt > 0;
CREATE INDEX timer_job_correlation ON tenure.timer_job (correlation_id) WHERE correlation_id IS NOT NULL;

-- For workers outside the cluster: locked row by row, with owner and expiry. A job's topic is its kind. It can be
-- acquired when both times are null or have passed.
CREATE TABLE tenure.external_job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    position       bigint      NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tenure.job_position') END,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms     integer,
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0,
    max_attempts   smallint,
    losses         smallint    NOT NULL DEFAULT 0,
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C",
    locked_by       text,
    lock_expires_at timestamptz,
    due_at          timestamptz, -- it was put off until then
    acquired_at     timestamptz  -- by whom it is locked now
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
-- A row is in one of these: it waits, is locked, or was put off.
CREATE INDEX external_job_waiting ON tenure.external_job (kind, tenant_id, priority DESC, position) WHERE lock_expires_at IS NULL AND due_at IS NULL;
CREATE INDEX external_job_locked ON tenure.external_job (kind, lock_expires_at) WHERE lock_expires_at IS NOT NULL;
CREATE INDEX external_job_due ON tenure.external_job (kind, due_at) WHERE due_at IS NOT NULL;
-- By which the locked ones of a tenant are counted that may have so many.
CREATE INDEX external_job_locked_of ON tenure.external_job (tenant_id) WHERE lock_expires_at IS NOT NULL;

-- Its table lock is the gate through which those go who acquire jobs for external workers. A row's lock
-- stands for the tenants without a row of their own in tenure.tenant whose name has that hash. Advisory locks are open
-- to everybody who can connect, tenants' roles among them.
CREATE TABLE tenure.external_gate (slot integer PRIMARY KEY);
INSERT INTO tenure.external_gate SELECT generate_series(0, 1023);

-- Not runnable until somebody resumes them; origin says where they go back to.
CREATE TABLE tenure.suspended_job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT 0,
    timeout_ms     integer,
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0,
    max_attempts   smallint,
    losses         smallint    NOT NULL DEFAULT 0,
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C",
    origin         text        NOT NULL,
    due_at         timestamptz,
    repeat         text,
    end_at         timestamptz,
    suspended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    resume_at      timestamptz -- null: when somebody says so
);
CREATE INDEX suspended_job_resume ON tenure.suspended_job (resume_at) WHERE resume_at IS NOT NULL;
CREATE INDEX suspended_job_correlation ON tenure.suspended_job (correlation_id) WHERE correlation_id IS NOT NULL;

-- Nothing was ever put into it: docs/upgrades.md says when it goes.
CREATE TABLE tenure.history_job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    position       bigint      NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tenure.job_position') END,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms     integer,
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0,
    max_attempts   smallint,
    losses         smallint    NOT NULL DEFAULT 0,
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C"
);
CREATE INDEX history_job_lane ON tenure.history_job (queue, tenant_id, priority, position);

---------------------------------------------------------------------------------------------------------------------
-- How jobs ended: finished, dead, what failed, and what their runs said
---------------------------------------------------------------------------------------------------------------------

-- Finished jobs, kept for a while; days are dropped, not deleted. The default
-- partition catches what finishes while no day's partition exists, so that
-- finishing a job never fails for want of one. tenure.make_day makes the days.
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
    outcome        text COLLATE "C" NOT NULL, -- done, business_error, cancelled
    payload        jsonb       NOT NULL,
    meta           jsonb,
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C",
    started_at     timestamptz, -- null: it did not run, or that is not known
    node           text         -- likewise
) PARTITION BY RANGE (finished_at);
CREATE TABLE tenure.completed_job_rest PARTITION OF tenure.completed_job DEFAULT;
-- BRIN, because rows arrive in order and a B-tree would cost as much as the insert. Each index costs every job that
-- finishes. Of the default partition they have names of their own, made first: that of all days takes what is there.
CREATE INDEX completed_job_rest_id_idx ON tenure.completed_job_rest USING brin (id) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX completed_job_id ON tenure.completed_job USING brin (id) WITH (pages_per_range = 32, autosummarize = on);
-- It says, of each 16 pages, between which times and with which outcomes the jobs in them finished, and what tenants,
-- kinds and queues theirs are not.
CREATE INDEX completed_job_rest_sought ON tenure.completed_job_rest USING brin (finished_at, outcome,
    tenant_id text_bloom_ops (n_distinct_per_range = 500, false_positive_rate = 0.001),
    kind text_bloom_ops (n_distinct_per_range = 100, false_positive_rate = 0.001),
    queue text_bloom_ops (n_distinct_per_range = 50, false_positive_rate = 0.001))
    WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX completed_job_sought ON tenure.completed_job USING brin (finished_at, outcome,
    tenant_id text_bloom_ops (n_distinct_per_range = 500, false_positive_rate = 0.001),
    kind text_bloom_ops (n_distinct_per_range = 100, false_positive_rate = 0.001),
    queue text_bloom_ops (n_distinct_per_range = 50, false_positive_rate = 0.001))
    WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX completed_job_rest_correlation ON tenure.completed_job_rest (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX completed_job_correlation ON tenure.completed_job (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX completed_job_rest_tagged ON tenure.completed_job_rest (id) WHERE meta IS NOT NULL;
CREATE INDEX completed_job_tagged ON tenure.completed_job (id) WHERE meta IS NOT NULL;

-- Not runnable until somebody retries them.
CREATE TABLE tenure.dead_letter_job (
    id             bigint      NOT NULL DEFAULT nextval('tenure.job_id') PRIMARY KEY,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn           integer     NOT NULL DEFAULT 0,
    timeout_ms     integer,
    priority       smallint    NOT NULL DEFAULT 0,
    attempt        smallint    NOT NULL DEFAULT 0,
    max_attempts   smallint,
    losses         smallint    NOT NULL DEFAULT 0,
    tenant_id      text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    meta           jsonb,
    exclusive_key  text COLLATE "C",
    unique_key     text COLLATE "C",
    correlation_id text COLLATE "C",
    origin         text        NOT NULL,
    error          text        NOT NULL,
    died_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_letter_job_died ON tenure.dead_letter_job (died_at);
-- By which lists find a tenant, kind or queue that few dead letters have.
CREATE INDEX dead_letter_job_tenant ON tenure.dead_letter_job (tenant_id, id);
CREATE INDEX dead_letter_job_kind ON tenure.dead_letter_job (kind, id);
CREATE INDEX dead_letter_job_queue ON tenure.dead_letter_job (queue, id);
CREATE INDEX dead_letter_job_correlation ON tenure.dead_letter_job (correlation_id) WHERE correlation_id IS NOT NULL;

-- One row per failed run.
CREATE TABLE tenure.job_error (
    job_id  bigint      NOT NULL,
    attempt smallint    NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    node    text        NOT NULL,
    error   text        NOT NULL,
    stack   text,
    began   timestamptz -- when the run did; null: that is not known
);
CREATE INDEX job_error_job ON tenure.job_error (job_id);
CREATE INDEX job_error_at ON tenure.job_error USING brin (at);

-- A run's progress, output and log lines, one row for each run that has any. lines are
-- {"ms": since started_at, "text": …}, the oldest first; left_out counts those before them.
CREATE TABLE tenure.job_report (
    job_id     bigint      NOT NULL,
    turn       integer     NOT NULL,
    attempt    smallint    NOT NULL,
    node       text        NOT NULL,
    started_at timestamptz NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done       bigint      NOT NULL DEFAULT 0,
    total      bigint      NOT NULL DEFAULT 0,
    note       text        NOT NULL DEFAULT '',
    output     jsonb,
    lines      jsonb       NOT NULL DEFAULT '[]',
    left_out   integer     NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, turn)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX job_report_written ON tenure.job_report USING brin (written_at);

---------------------------------------------------------------------------------------------------------------------
-- Unique keys, tags, limits and rates
---------------------------------------------------------------------------------------------------------------------

-- A tenant's unfinished jobs with a unique key, over all tables they can stand in.
CREATE TABLE tenure.unique_job (
    tenant_id text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    job_id    bigint NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

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

-- Which jobs have a tag, wherever they stand. The tags themselves go with the job, in its meta. Rows are written with
-- a job that has tags, and removed some time after it is gone.
CREATE TABLE tenure.job_tag (
    tenant_id text COLLATE "C" NOT NULL,
    tag       text COLLATE "C" NOT NULL,
    job_id    bigint           NOT NULL,
    gone_at   timestamptz, -- when it was noticed that the job is neither unfinished nor dead any more
    PRIMARY KEY (tenant_id, tag, job_id)
);
CREATE INDEX job_tag_job ON tenure.job_tag (tag, job_id);

-- How many jobs of a tenant, of one of its kinds or queues may be in flight at a time, and how many may start in a
-- period, as operators have set it; of an exclusive key only the latter, as one runs at a time in any case. Of a tenant
-- whose id is empty, each tenant has such a limit of its own, unless it has one by itself. A tenant's own max_running
-- stands in tenure.tenant.
CREATE TABLE tenure.job_limit (
    tenant_id   text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL CHECK (scope IN ('tenant', 'kind', 'queue', 'key')),
    name        text COLLATE "C" NOT NULL, -- of the kind or queue; the key, or empty: each of the tenant's; of a tenant: empty
    max_running integer CHECK (max_running > 0),
    rate        integer CHECK (rate > 0),  -- so many starts in per_ms, and burst at once
    per_ms      bigint  CHECK (per_ms > 0),
    burst       integer CHECK (burst > 0),
    PRIMARY KEY (tenant_id, scope, name),
    CONSTRAINT job_limit_name_check CHECK (scope = 'key' OR (name = '') = (scope = 'tenant')),
    CONSTRAINT job_limit_key_check CHECK (scope <> 'key' OR max_running IS NULL),
    CONSTRAINT job_limit_check1 CHECK (max_running IS NOT NULL OR rate IS NOT NULL),
    CONSTRAINT job_limit_check2 CHECK ((rate IS NULL) = (per_ms IS NULL) AND (rate IS NULL) = (burst IS NULL))
);

-- How much of its rate each tenant has used: at this time the bucket of tokens is full again. It is
-- written in the transaction of the claim that takes them. One that is full has no row, or an old one.
CREATE TABLE tenure.rate_bucket (
    tenant_id text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    full_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, scope, name)
) WITH (fillfactor = 50);

---------------------------------------------------------------------------------------------------------------------
-- Jobs that start when others have ended: chains and batches. Meanwhile they are timers that are never due.
---------------------------------------------------------------------------------------------------------------------

CREATE TABLE tenure.awaiting (
    job_id     bigint      PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    on_failure text        NOT NULL CHECK (on_failure IN ('wait', 'cancel', 'run')),
    batch      boolean     NOT NULL, -- jobs may be added to those that it awaits
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at  timestamptz           -- null: it awaits some
);
CREATE INDEX awaiting_open ON tenure.awaiting (job_id) WHERE closed_at IS NULL;
CREATE INDEX awaiting_closed ON tenure.awaiting (closed_at, job_id) WHERE closed_at IS NOT NULL;
CREATE INDEX awaiting_batch ON tenure.awaiting (job_id) WHERE batch;
CREATE INDEX awaiting_tenant ON tenure.awaiting (tenant_id, job_id);

-- Which jobs they await, and how these ended: written by who adds the job, and by the holder.
CREATE TABLE tenure.awaited (
    awaiting_id bigint NOT NULL,
    job_id      bigint NOT NULL,
    tenant_id   text COLLATE "C" NOT NULL,
    outcome     text COLLATE "C" CHECK (outcome IN ('done', 'dead', 'cancelled', 'unknown')), -- null: it has not ended
    PRIMARY KEY (job_id, awaiting_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX awaited_pending ON tenure.awaited (job_id, awaiting_id) WHERE outcome IS NULL;
CREATE INDEX awaited_of ON tenure.awaited (awaiting_id, outcome, job_id);

-- Ends of awaited jobs that the holder has not taken in; or, with awaiting_id, that a job may await
-- nothing any more. Rows are only added, so that ends do not wait for one another. The order of ids
-- is that of a job's ends. They are not unique: after a restore that set their sequence back no end
-- must fail by it.
CREATE TABLE tenure.awaited_end (
    id          bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id   text COLLATE "C" NOT NULL,
    job_id      bigint,
    outcome     text COLLATE "C",
    awaiting_id bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX awaited_end_id ON tenure.awaited_end (id);

---------------------------------------------------------------------------------------------------------------------
-- Schedules, operations, and what operators have done and set
---------------------------------------------------------------------------------------------------------------------

-- Cron and interval definitions. One for every tenant, whose tenant_id is empty, adds no jobs itself: it is due when
-- tenants are to get their copies of it. A schedule's jobs have what their kind gives by default, which whoever has the
-- kind's handler notes for those who add jobs without having it.
CREATE TABLE tenure.schedule (
    name          text COLLATE "C" NOT NULL,
    tenant_id     text COLLATE "C" NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    queue         text COLLATE "C" NOT NULL,                            -- where jobs go; with kinds_queue: if the kind's is not known
    payload       jsonb       NOT NULL DEFAULT '{}',
    spec          text        NOT NULL,
    time_zone     text        NOT NULL DEFAULT 'UTC',
    paused        boolean     NOT NULL DEFAULT false,
    next_at       timestamptz,                                          -- null: nothing is due any more
    last_at       timestamptz,
    origin        text        NOT NULL DEFAULT 'set' CHECK (origin IN ('set', 'config', 'every')), -- by API or command line; from the configuration; a tenant's copy of one for every tenant
    since         timestamptz NOT NULL DEFAULT clock_timestamp(),       -- when its times became what they are
    end_at        timestamptz,                                          -- the last time that can be due
    missed        text        NOT NULL DEFAULT 'one' CHECK (missed IN ('skip', 'one', 'all')),
    waits         boolean     NOT NULL DEFAULT false,                   -- for the job before to end
    jitter_ms     bigint      NOT NULL DEFAULT 0,                       -- how much later than its times, for every tenant: at most
    priority      smallint    NOT NULL DEFAULT 0,
    max_attempts  smallint,                                             -- null: the kind's
    meta          jsonb,
    last_job      bigint,
    kinds_queue   boolean     NOT NULL DEFAULT false,                   -- no queue was named: the kind's counts, where that is known
    exclusive_key text COLLATE "C",                                     -- as last worked out; null: none, or not known
    PRIMARY KEY (tenant_id, name)
);
CREATE INDEX schedule_next ON tenure.schedule (next_at) WHERE NOT paused;

-- Whose jobs have finished, so that schedules for every tenant reach those of whom nothing else is left here: a holder
-- notes it as it goes, and never reads a finished job for it again. The row without a tenant says up to when finished
-- jobs were looked at.
CREATE TABLE tenure.seen_tenant (
    tenant_id text COLLATE "C" PRIMARY KEY,
    until     timestamptz NOT NULL CHECK (isfinite(until)) -- when one of its jobs finished last, to a day
);

-- Operations in the background: what an operator wants done to many jobs, carried out by whoever holds the pool's lock.
-- While one that cancels jobs is under way its state is begun, and else running.
CREATE TABLE tenure.operation (
    id             uuid PRIMARY KEY,          -- the same in each pool that it concerns
    action         text COLLATE "C" NOT NULL CHECK (action IN ('retry', 'delete', 'cancel')),
    tenant_id      text COLLATE "C",          -- which jobs: null in these columns chooses all
    kind           text COLLATE "C",
    error          text,                      -- contains this, which is in lower case
    dead_group     text COLLATE "C",
    died_before    timestamptz NOT NULL,      -- of jobs that are cancelled: made before
    per_second     double precision CHECK (per_second > 0), -- null: as fast as that goes
    asked_by       text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    state          text COLLATE "C" NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'begun', 'done', 'cancelled')),
    ended_at       timestamptz,
    next_at        timestamptz NOT NULL DEFAULT clock_timestamp(), -- of the next step
    after_id       bigint NOT NULL DEFAULT -9223372036854775808,   -- how far it is: it goes by the ids of jobs
    done           bigint NOT NULL DEFAULT 0,
    key_taken      bigint NOT NULL DEFAULT 0, -- stay dead, because an unfinished job has their unique key
    left_dead      bigint NOT NULL DEFAULT 0, -- stay dead for other reasons
    failure        text,                      -- of the last step; null: it has not failed
    queue          text COLLATE "C",          -- which jobs are to be cancelled, with tenant_id and kind
    job_state      text COLLATE "C",
    tag            text COLLATE "C",
    correlation_id text,
    pass           integer NOT NULL DEFAULT 0, -- how many tables of jobs it has been through; after_id is about the next one
    CONSTRAINT operation_ended_check CHECK ((state IN ('running', 'begun')) = (ended_at IS NULL)),
    CONSTRAINT operation_begun_check CHECK (action <> 'cancel' OR state <> 'running')
);
CREATE INDEX operation_running ON tenure.operation (next_at) WHERE state = 'running';
CREATE INDEX operation_unended ON tenure.operation (next_at) WHERE ended_at IS NULL;

-- What operators have done, and who they were. Users of the ledger may insert and read, and old rows are removed by
-- tenure.trim_audit, which keeps those of a month in any case.
CREATE TABLE tenure.audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text NOT NULL,
    action    text COLLATE "C" NOT NULL, -- such as job.cancel
    tenant_id text COLLATE "C",          -- whose it was; null: of all, or of nobody
    job_id    bigint,
    subject   text,                      -- the name of what it was done to, if that is no job
    detail    jsonb                      -- what was asked for, beside that
);
CREATE INDEX audit_at ON tenure.audit (at, id);

-- Queues and kinds that an operator has frozen: of no tenant is a job of theirs claimed here. It stands by itself, so
-- that no tenant's move takes any of it along.
CREATE TABLE tenure.frozen (
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('queue', 'kind')),
    name  text COLLATE "C" NOT NULL CHECK (name <> ''),
    since timestamptz NOT NULL DEFAULT now() CHECK (isfinite(since)),
    PRIMARY KEY (scope, name)
);

---------------------------------------------------------------------------------------------------------------------
-- Tenants, roles and users
---------------------------------------------------------------------------------------------------------------------

-- The tenants about which something is to be said: one without a row is active. state:
-- active: the tenant's jobs run here, unless it is frozen.
-- moving: it is about to leave for other_pool; jobs are taken in, and none is claimed.
-- moved: it left for other_pool; jobs are refused. The row is the forwarding address.
-- arriving: its jobs come in from other_pool, or, without one, from where they should
-- not have been; none is claimed.
CREATE TABLE tenure.tenant (
    tenant_id     text COLLATE "C" PRIMARY KEY,
    schema_name   text,                           -- who knows a tenant's schema is the configuration
    role_name     text,
    state         text     NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'moving', 'moved', 'arriving')),
    weight        integer  NOT NULL DEFAULT 1 CHECK (weight > 0),
    max_running   integer,
    frozen        boolean  NOT NULL DEFAULT false,
    other_pool    text,                           -- the other end of a move
    mover         uuid,                           -- the command that works on it, so that of two only the later one goes on
    arrived       bigint[] NOT NULL DEFAULT '{}', -- the finished jobs of the last batch, which have no key that would keep them from coming twice
    held          boolean  NOT NULL DEFAULT false, -- counts while state is moving: the tenant's data is being copied to other_pool, so that nothing of it may be written here
    max_waiting   integer CHECK (max_waiting > 0), -- how many of its jobs may wait; null: any number
    over_quota_at timestamptz,                    -- when the holder has seen last that so many do. That counts for a minute
    CONSTRAINT tenant_goes_somewhere CHECK (other_pool IS NOT NULL OR state NOT IN ('moving', 'moved'))
);
-- Those whose jobs are not claimed: what timers and lanes are compared with.
CREATE INDEX tenant_resting ON tenure.tenant (tenant_id) WHERE state <> 'active' OR frozen;

-- Which role a tenant's transactions take. Written by clients and nodes, from their
-- configuration, and by `tenure migrate --grants`. The row of the tenant '' holds the
-- pattern for tenants that have no row, in which {tenant} stands for the id.
CREATE TABLE tenure.tenant_role (
    tenant_id text COLLATE "C" PRIMARY KEY,
    role_name text NOT NULL
);

-- The users that `tenure migrate --grants --runtime` named, and nobody but the owner writes here.
CREATE TABLE tenure.runtime_user (
    user_name text COLLATE "C" PRIMARY KEY,
    named_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

---------------------------------------------------------------------------------------------------------------------
-- What everybody may ask. Who may do what is said in docs/privileges.md. Thousands of tenants' roles would make access
-- lists that are slow to read and to change: the schema shows names only, and the functions decide by themselves.
---------------------------------------------------------------------------------------------------------------------

GRANT USAGE ON SCHEMA tenure TO PUBLIC;

-- The door: what is asked of the ledger is a row that is inserted here. A function with the owner's
-- rights does not see who executed it; the default of a column does, and it is one that
-- nobody may give a value of his own (ADR 68). tenure.answer does what is asked.
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
CREATE TRIGGER answer INSTEAD OF INSERT ON tenure.door FOR EACH ROW EXECUTE FUNCTION tenure.answer();
GRANT INSERT (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key, pool, with_data,
              exclusive_key, timeout, unique_for, tags, after_jobs, on_failure, as_batch, in_batch, job_id, keep),
      SELECT (id, duplicate, refused, other_pool, answer)
    ON tenure.door TO PUBLIC; -- who may execute which function is asked behind it

-- What only the view below can read, with its owner's rights: who passes it to tenure.seen_by is the view, which says who looks.
CREATE TABLE tenure.view_key (key uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO tenure.view_key DEFAULT VALUES;

-- The jobs that the caller may see. state: waiting, claimed (by a node that has not taken it over
-- yet), running, scheduled, retrying, awaiting (others), locked (by an external worker), suspended, dead, done,
-- business_error, cancelled. cancelling: it is to be cancelled. due_at is a timer's, also while that is suspended. A
-- barrier, so that no function of the caller's is shown other tenants' rows.
CREATE VIEW tenure.job_seen WITH (security_barrier) AS
SELECT s.*, s.state NOT IN ('dead', 'done', 'business_error', 'cancelled') AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = s.id) AS cancelling
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
WHERE (SELECT v.every FROM tenure.view_key k, LATERAL tenure.seen_by(current_user, k.key) v)
   <> (s.tenant_id = ANY ((SELECT v.tenants FROM tenure.view_key k, LATERAL tenure.seen_by(current_user, k.key) v)::text[]));

-- What the view above shows, for everybody. Of a job only the id is compared before it is known whose it is. All else
-- is an expression of which Postgres does not believe that it tells nothing, so that conditions on it stay outside of
-- tenure.job_seen, and has no statistics: EXPLAIN ANALYZE would count other tenants' jobs by tenant, kind or queue.
CREATE VIEW tenure.job_status (id, tenant, kind, queue, state, cancelling, priority, attempt, max_attempts, created_at, due_at, error, unique_key, correlation_id)
    WITH (security_barrier) AS
SELECT id, substr(tenant_id, 1), substr(kind, 1), substr(queue, 1), substr(state, 1), cancelling::text::boolean, priority::text::smallint, attempt::text::smallint,
       max_attempts::text::smallint, created_at + interval '0', due_at + interval '0', substr(error, 1), substr(unique_key, 1), substr(correlation_id, 1)
FROM tenure.job_seen;
GRANT SELECT ON tenure.job_status TO PUBLIC; -- which shows everybody what is his

---------------------------------------------------------------------------------------------------------------------
-- Bounds, as everything that writes here keeps to: a number at its type's end, a NULL in a list, or a time that no clock
-- and no list can do with, which somebody has set by hand, stops statements that are for many rows. A job's leave
-- room for what is counted up. NOT VALID, as in ledgers in which rows stood before.
---------------------------------------------------------------------------------------------------------------------

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['job', 'timer_job', 'external_job', 'suspended_job', 'dead_letter_job'] LOOP
        EXECUTE format('ALTER TABLE tenure.%I ADD CONSTRAINT %I CHECK (
            turn BETWEEN 0 AND 2100000000 AND attempt BETWEEN 0 AND 32000 AND losses BETWEEN 0 AND 32000
            AND octet_length(tenant_id) <= 256 AND octet_length(queue) <= 256 AND octet_length(kind) <= 256
            AND octet_length(exclusive_key) <= 1024 AND octet_length(unique_key) <= 1024 AND octet_length(correlation_id) <= 1024) NOT VALID',
            name, name || '_bounds');
    END LOOP;
END
$$;
ALTER TABLE tenure.timer_job ADD CONSTRAINT timer_job_time CHECK (due_at >= '1969-12-31 00:00+00' AND due_at <= '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.suspended_job ADD CONSTRAINT suspended_job_time CHECK (due_at >= '1969-12-31 00:00+00' AND due_at <= '10000-01-02 00:00+00' AND resume_at >= '1969-12-31 00:00+00' AND resume_at <= '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.external_job ADD CONSTRAINT external_job_time CHECK (due_at >= '1969-12-31 00:00+00' AND due_at <= '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.schedule ADD CONSTRAINT schedule_bounds CHECK (jitter_ms BETWEEN 0 AND 86400000
    AND next_at BETWEEN '1969-12-31 00:00+00' AND '10000-01-02 00:00+00'
    AND octet_length(tenant_id) <= 256 AND octet_length(queue) <= 256 AND octet_length(kind) <= 256) NOT VALID;
ALTER TABLE tenure.rate_bucket ADD CONSTRAINT rate_bucket_bounds CHECK (full_at BETWEEN '1969-12-31 00:00+00' AND '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.job_limit ADD CONSTRAINT job_limit_bounds CHECK (per_ms <= 31622400000) NOT VALID;
ALTER TABLE tenure.operation ADD CONSTRAINT operation_bounds CHECK (next_at BETWEEN '1969-12-31 00:00+00' AND '10000-01-02 00:00+00'
    AND per_second <= 1000000000) NOT VALID; -- NaN is more than any number
ALTER TABLE tenure.claim ADD CONSTRAINT claim_bounds CHECK (coalesce(array_ndims(job_ids), 1) = 1 AND array_position(job_ids, NULL) IS NULL) NOT VALID;
ALTER TABLE tenure.node_session ADD CONSTRAINT node_session_bounds CHECK (coalesce(array_ndims(kinds), 1) = 1 AND array_position(kinds, NULL) IS NULL
    AND expires_at <= last_seen + interval '366 days' AND hb_seq BETWEEN 0 AND 4000000000000000000) NOT VALID;
ALTER TABLE tenure.acquire_lock ADD CONSTRAINT acquire_lock_bounds CHECK (expires_at <= renewed_at + interval '366 days'
    AND epoch BETWEEN 0 AND 4000000000000000000 AND renew_seq BETWEEN 0 AND 4000000000000000000
    AND removals BETWEEN 0 AND 4000000000000000000 AND limit_changes BETWEEN 0 AND 4000000000000000000) NOT VALID;
ALTER TABLE tenure.tenant ADD CONSTRAINT tenant_bounds CHECK (weight <= 100) NOT VALID;

---------------------------------------------------------------------------------------------------------------------
-- For all of them
---------------------------------------------------------------------------------------------------------------------

-- A ledger may be published: CREATE PUBLICATION … FOR ALL TABLES, as for change capture and upgrades
-- between two servers, has Postgres refuse to update and delete rows of tables without a key.
ALTER TABLE tenure.job_error REPLICA IDENTITY FULL;
ALTER TABLE tenure.incarnation REPLICA IDENTITY FULL;
ALTER TABLE tenure.awaited_end REPLICA IDENTITY FULL;
ALTER TABLE tenure.completed_job_rest REPLICA IDENTITY FULL;

-- Nobody but the owner may make something of the row types: a tenant's table with a column of such a type keeps the
-- ledger's from being altered.
DO $$
DECLARE
    of_table regclass;
BEGIN
    FOR of_table IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p', 'v') LOOP
        EXECUTE format('REVOKE USAGE ON TYPE %s FROM PUBLIC', of_table);
    END LOOP;
END
$$;

-- For who adds jobs before a node has come.
SELECT tenure.begin_incarnation(false);
