-- The ledger as it is now, for people to read and compare: it is executed nowhere. Behind a function stands the md5 of
-- its definition. Written by: go test ./internal/store -run TestSchema -update

CREATE SEQUENCE tenure.incarnation_moment MINVALUE 0 START 0 INCREMENT 1 CACHE 1;
CREATE SEQUENCE tenure.job_id MINVALUE 1 START 1 INCREMENT 1 CACHE 1;
CREATE SEQUENCE tenure.job_position MINVALUE 1 START 1 INCREMENT 1 CACHE 1;

CREATE TABLE tenure.acquire_lock (
    name text NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    holder uuid,
    holder_member text,
    taken_at timestamp with time zone,
    renewed_at timestamp with time zone NOT NULL DEFAULT to_timestamp((0)::double precision),
    expires_at timestamp with time zone NOT NULL DEFAULT to_timestamp((0)::double precision),
    renew_seq bigint NOT NULL DEFAULT 0,
    next_holder text,
    reserved_until timestamp with time zone NOT NULL DEFAULT to_timestamp((0)::double precision),
    paused boolean NOT NULL DEFAULT false,
    removals bigint NOT NULL DEFAULT 0,
    limit_changes bigint NOT NULL DEFAULT 0,
    bottom bigint NOT NULL DEFAULT 0,
    bottom_incarnation integer NOT NULL DEFAULT 0,
    CONSTRAINT acquire_lock_bounds CHECK (((expires_at <= (renewed_at + '366 days'::interval)) AND ((epoch >= 0) AND (epoch <= '4000000000000000000'::bigint)) AND ((renew_seq >= 0) AND (renew_seq <= '4000000000000000000'::bigint)) AND ((removals >= 0) AND (removals <= '4000000000000000000'::bigint)) AND ((limit_changes >= 0) AND (limit_changes <= '4000000000000000000'::bigint)))) NOT VALID,
    CONSTRAINT acquire_lock_name_epoch_key UNIQUE (name, epoch),
    CONSTRAINT acquire_lock_pkey PRIMARY KEY (name),
    CONSTRAINT acquire_lock_time CHECK ((isfinite(taken_at) AND isfinite(renewed_at) AND isfinite(expires_at) AND isfinite(reserved_until)))
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=200);

CREATE TABLE tenure.audit (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    who text NOT NULL,
    action text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C",
    job_id bigint,
    subject text,
    detail jsonb,
    CONSTRAINT audit_pkey PRIMARY KEY (id)
);
CREATE INDEX audit_at ON tenure.audit USING btree (at, id);

CREATE TABLE tenure.awaited (
    awaiting_id bigint NOT NULL,
    job_id bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    outcome text COLLATE "C",
    CONSTRAINT awaited_outcome_check CHECK ((outcome = ANY (ARRAY['done'::text, 'dead'::text, 'cancelled'::text, 'unknown'::text]))),
    CONSTRAINT awaited_pkey PRIMARY KEY (job_id, awaiting_id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX awaited_of ON tenure.awaited USING btree (awaiting_id, outcome, job_id);
CREATE INDEX awaited_pending ON tenure.awaited USING btree (job_id, awaiting_id) WHERE (outcome IS NULL);

CREATE TABLE tenure.awaited_end (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    tenant_id text COLLATE "C" NOT NULL,
    job_id bigint,
    outcome text COLLATE "C",
    awaiting_id bigint
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0);
ALTER TABLE tenure.awaited_end REPLICA IDENTITY FULL;
CREATE INDEX awaited_end_id ON tenure.awaited_end USING btree (id);

CREATE TABLE tenure.awaiting (
    job_id bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    on_failure text NOT NULL,
    batch boolean NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamp with time zone,
    CONSTRAINT awaiting_on_failure_check CHECK ((on_failure = ANY (ARRAY['wait'::text, 'cancel'::text, 'run'::text]))),
    CONSTRAINT awaiting_pkey PRIMARY KEY (job_id)
);
CREATE INDEX awaiting_batch ON tenure.awaiting USING btree (job_id) WHERE batch;
CREATE INDEX awaiting_closed ON tenure.awaiting USING btree (closed_at, job_id) WHERE (closed_at IS NOT NULL);
CREATE INDEX awaiting_open ON tenure.awaiting USING btree (job_id) WHERE (closed_at IS NULL);
CREATE INDEX awaiting_tenant ON tenure.awaiting USING btree (tenant_id, job_id);

CREATE TABLE tenure.cancel_request (
    job_id bigint NOT NULL,
    requested_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT cancel_request_pkey PRIMARY KEY (job_id)
);

CREATE TABLE tenure.claim (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    session_id uuid NOT NULL,
    turn integer NOT NULL,
    job_ids bigint[] NOT NULL,
    claimed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    started_at timestamp with time zone,
    given boolean NOT NULL DEFAULT false,
    CONSTRAINT claim_bounds CHECK (((COALESCE(array_ndims(job_ids), 1) = 1) AND (array_position(job_ids, NULL::bigint) IS NULL))) NOT VALID,
    CONSTRAINT claim_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0);

CREATE TABLE tenure.completed_job (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    turn integer NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    losses smallint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    started_at timestamp with time zone,
    node text,
    timeout_ms integer,
    max_attempts smallint,
    exclusive_key text COLLATE "C",
    external boolean
) PARTITION BY RANGE (finished_at);
CREATE INDEX completed_job_correlation ON ONLY tenure.completed_job USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX completed_job_id ON ONLY tenure.completed_job USING brin (id) WITH (pages_per_range='32', autosummarize='on');
CREATE INDEX completed_job_sought ON ONLY tenure.completed_job USING brin (finished_at, outcome, tenant_id text_bloom_ops (n_distinct_per_range='500', false_positive_rate='0.001'), kind text_bloom_ops (n_distinct_per_range='100', false_positive_rate='0.001'), queue text_bloom_ops (n_distinct_per_range='50', false_positive_rate='0.001')) WITH (pages_per_range='16', autosummarize='on');
CREATE INDEX completed_job_tagged ON ONLY tenure.completed_job USING btree (id) WHERE (meta IS NOT NULL);

CREATE TABLE tenure.completed_job_rest (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    turn integer NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    losses smallint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    started_at timestamp with time zone,
    node text,
    timeout_ms integer,
    max_attempts smallint,
    exclusive_key text COLLATE "C",
    external boolean
) PARTITION OF tenure.completed_job DEFAULT;
ALTER TABLE tenure.completed_job_rest REPLICA IDENTITY FULL;
CREATE INDEX completed_job_rest_correlation ON tenure.completed_job_rest USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX completed_job_rest_id_idx ON tenure.completed_job_rest USING brin (id) WITH (pages_per_range='32', autosummarize='on');
CREATE INDEX completed_job_rest_sought ON tenure.completed_job_rest USING brin (finished_at, outcome, tenant_id text_bloom_ops (n_distinct_per_range='500', false_positive_rate='0.001'), kind text_bloom_ops (n_distinct_per_range='100', false_positive_rate='0.001'), queue text_bloom_ops (n_distinct_per_range='50', false_positive_rate='0.001')) WITH (pages_per_range='16', autosummarize='on');
CREATE INDEX completed_job_rest_tagged ON tenure.completed_job_rest USING btree (id) WHERE (meta IS NOT NULL);

CREATE TABLE tenure.dead_letter_job (
    id bigint NOT NULL DEFAULT nextval('tenure.job_id'::regclass),
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    turn integer NOT NULL DEFAULT 0,
    timeout_ms integer,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    losses smallint NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    exclusive_key text COLLATE "C",
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    origin text NOT NULL,
    error text NOT NULL,
    died_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT dead_letter_job_bounds CHECK ((((turn >= 0) AND (turn <= 2100000000)) AND ((attempt >= 0) AND (attempt <= 32000)) AND ((losses >= 0) AND (losses <= 32000)) AND (octet_length(tenant_id) <= 256) AND (octet_length(queue) <= 256) AND (octet_length(kind) <= 256) AND (octet_length(exclusive_key) <= 1024) AND (octet_length(unique_key) <= 1024) AND (octet_length(correlation_id) <= 1024))) NOT VALID,
    CONSTRAINT dead_letter_job_pkey PRIMARY KEY (id)
);
CREATE INDEX dead_letter_job_correlation ON tenure.dead_letter_job USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX dead_letter_job_died ON tenure.dead_letter_job USING btree (died_at);
CREATE INDEX dead_letter_job_kind ON tenure.dead_letter_job USING btree (kind, id);
CREATE INDEX dead_letter_job_queue ON tenure.dead_letter_job USING btree (queue, id);
CREATE INDEX dead_letter_job_tenant ON tenure.dead_letter_job USING btree (tenant_id, id);

CREATE TABLE tenure.external_gate (
    slot integer NOT NULL,
    CONSTRAINT external_gate_pkey PRIMARY KEY (slot)
);

CREATE TABLE tenure.external_job (
    id bigint NOT NULL DEFAULT nextval('tenure.job_id'::regclass),
    "position" bigint NOT NULL DEFAULT  CASE WHEN (pg_current_xact_id() IS NOT NULL) THEN nextval('tenure.job_position'::regclass) ELSE NULL::bigint END,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    turn integer NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms integer,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    losses smallint NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    exclusive_key text COLLATE "C",
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    locked_by text,
    lock_expires_at timestamp with time zone,
    due_at timestamp with time zone,
    acquired_at timestamp with time zone,
    ready_at timestamp with time zone DEFAULT clock_timestamp(),
    CONSTRAINT external_job_bounds CHECK ((((turn >= 0) AND (turn <= 2100000000)) AND ((attempt >= 0) AND (attempt <= 32000)) AND ((losses >= 0) AND (losses <= 32000)) AND (octet_length(tenant_id) <= 256) AND (octet_length(queue) <= 256) AND (octet_length(kind) <= 256) AND (octet_length(exclusive_key) <= 1024) AND (octet_length(unique_key) <= 1024) AND (octet_length(correlation_id) <= 1024))) NOT VALID,
    CONSTRAINT external_job_pkey PRIMARY KEY (id),
    CONSTRAINT external_job_time CHECK (((due_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (due_at <= '10000-01-02 00:00:00+00'::timestamp with time zone))) NOT VALID
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX external_job_again ON tenure.external_job USING btree (tenant_id, exclusive_key) WHERE ((exclusive_key IS NOT NULL) AND (due_at IS NOT NULL) AND (attempt > 0));
CREATE INDEX external_job_due ON tenure.external_job USING btree (kind, due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX external_job_locked ON tenure.external_job USING btree (kind, lock_expires_at) WHERE (lock_expires_at IS NOT NULL);
CREATE INDEX external_job_locked_of ON tenure.external_job USING btree (tenant_id) WHERE (lock_expires_at IS NOT NULL);
CREATE INDEX external_job_next ON tenure.external_job USING btree (tenant_id, exclusive_key, ((attempt = 0)), "position") WHERE ((exclusive_key IS NOT NULL) AND (lock_expires_at IS NULL) AND (due_at IS NULL));
CREATE INDEX external_job_waiting ON tenure.external_job USING btree (kind, tenant_id, priority DESC, "position") WHERE ((lock_expires_at IS NULL) AND (due_at IS NULL));
CREATE UNIQUE INDEX external_job_exclusive ON tenure.external_job USING btree (tenant_id, exclusive_key) WHERE ((exclusive_key IS NOT NULL) AND (lock_expires_at IS NOT NULL));

CREATE TABLE tenure.frozen (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    since timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT frozen_name_check CHECK ((name <> ''::text)),
    CONSTRAINT frozen_pkey PRIMARY KEY (scope, name),
    CONSTRAINT frozen_scope_check CHECK ((scope = ANY (ARRAY['queue'::text, 'kind'::text]))),
    CONSTRAINT frozen_since_check CHECK (isfinite(since))
);

CREATE TABLE tenure.function_text (
    name text COLLATE "C" NOT NULL,
    digest text NOT NULL,
    CONSTRAINT function_text_pkey PRIMARY KEY (name)
);

CREATE TABLE tenure.history_job (
    id bigint NOT NULL DEFAULT nextval('tenure.job_id'::regclass),
    "position" bigint NOT NULL DEFAULT  CASE WHEN (pg_current_xact_id() IS NOT NULL) THEN nextval('tenure.job_position'::regclass) ELSE NULL::bigint END,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    turn integer NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms integer,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    losses smallint NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    exclusive_key text COLLATE "C",
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    CONSTRAINT history_job_pkey PRIMARY KEY (id)
);
CREATE INDEX history_job_lane ON tenure.history_job USING btree (queue, tenant_id, priority, "position");

CREATE UNLOGGED TABLE tenure.incarnation (
    first_turn integer NOT NULL,
    written_by xid NOT NULL,
    server_started timestamp with time zone NOT NULL,
    file text NOT NULL,
    began_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE tenure.incarnation REPLICA IDENTITY FULL;

CREATE TABLE tenure.job (
    id bigint NOT NULL DEFAULT nextval('tenure.job_id'::regclass),
    "position" bigint NOT NULL DEFAULT  CASE WHEN (pg_current_xact_id() IS NOT NULL) THEN nextval('tenure.job_position'::regclass) ELSE NULL::bigint END,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    turn integer NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms integer,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    losses smallint NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    exclusive_key text COLLATE "C",
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    ready_at timestamp with time zone DEFAULT clock_timestamp(),
    CONSTRAINT job_bounds CHECK ((((turn >= 0) AND (turn <= 2100000000)) AND ((attempt >= 0) AND (attempt <= 32000)) AND ((losses >= 0) AND (losses <= 32000)) AND (octet_length(tenant_id) <= 256) AND (octet_length(queue) <= 256) AND (octet_length(kind) <= 256) AND (octet_length(exclusive_key) <= 1024) AND (octet_length(unique_key) <= 1024) AND (octet_length(correlation_id) <= 1024))) NOT VALID,
    CONSTRAINT job_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_insert_scale_factor=0.2, autovacuum_vacuum_cost_delay=0);
CREATE INDEX job_correlation ON tenure.job USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX job_exclusive ON tenure.job USING btree (tenant_id, exclusive_key, ((attempt = 0)), "position") WHERE (exclusive_key IS NOT NULL);
CREATE INDEX job_lane ON tenure.job USING btree (queue, tenant_id, priority, "position");

CREATE TABLE tenure.job_error (
    job_id bigint NOT NULL,
    attempt smallint NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    node text NOT NULL,
    error text NOT NULL,
    stack text,
    began timestamp with time zone
);
ALTER TABLE tenure.job_error REPLICA IDENTITY FULL;
CREATE INDEX job_error_at ON tenure.job_error USING brin (at);
CREATE INDEX job_error_job ON tenure.job_error USING btree (job_id);

CREATE TABLE tenure.job_limit (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    max_running integer,
    rate integer,
    per_ms bigint,
    burst integer,
    CONSTRAINT job_limit_bounds CHECK ((per_ms <= '31622400000'::bigint)) NOT VALID,
    CONSTRAINT job_limit_burst_check CHECK ((burst > 0)),
    CONSTRAINT job_limit_check1 CHECK (((max_running IS NOT NULL) OR (rate IS NOT NULL))),
    CONSTRAINT job_limit_check2 CHECK ((((rate IS NULL) = (per_ms IS NULL)) AND ((rate IS NULL) = (burst IS NULL)))),
    CONSTRAINT job_limit_key_check CHECK (((scope <> 'key'::text) OR (max_running IS NULL))),
    CONSTRAINT job_limit_max_running_check CHECK ((max_running > 0)),
    CONSTRAINT job_limit_name_check CHECK (((scope = 'key'::text) OR ((name = ''::text) = (scope = 'tenant'::text)))),
    CONSTRAINT job_limit_per_ms_check CHECK ((per_ms > 0)),
    CONSTRAINT job_limit_pkey PRIMARY KEY (tenant_id, scope, name),
    CONSTRAINT job_limit_rate_check CHECK ((rate > 0)),
    CONSTRAINT job_limit_scope_check CHECK ((scope = ANY (ARRAY['tenant'::text, 'kind'::text, 'queue'::text, 'key'::text])))
);

CREATE TABLE tenure.job_report (
    job_id bigint NOT NULL,
    turn integer NOT NULL,
    attempt smallint NOT NULL,
    node text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    written_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    done bigint NOT NULL DEFAULT 0,
    total bigint NOT NULL DEFAULT 0,
    note text NOT NULL DEFAULT ''::text,
    output jsonb,
    lines jsonb NOT NULL DEFAULT '[]'::jsonb,
    left_out integer NOT NULL DEFAULT 0,
    CONSTRAINT job_report_pkey PRIMARY KEY (job_id, turn)
) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE INDEX job_report_written ON tenure.job_report USING brin (written_at);

CREATE TABLE tenure.job_tag (
    tenant_id text COLLATE "C" NOT NULL,
    tag text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    gone_at timestamp with time zone,
    CONSTRAINT job_tag_pkey PRIMARY KEY (tenant_id, tag, job_id)
);
CREATE INDEX job_tag_job ON tenure.job_tag USING btree (tag, job_id);

CREATE TABLE tenure.kind_queue (
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    CONSTRAINT kind_queue_bounds CHECK (((octet_length(kind) <= 256) AND (octet_length(queue) <= 256))),
    CONSTRAINT kind_queue_pkey PRIMARY KEY (kind)
);

CREATE TABLE tenure.lock_change (
    epoch bigint NOT NULL,
    change text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    node text,
    member text,
    CONSTRAINT lock_change_change_check CHECK ((change = ANY (ARRAY['taken'::text, 'released'::text, 'frozen'::text, 'thawed'::text]))),
    CONSTRAINT lock_change_pkey PRIMARY KEY (epoch, change)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

CREATE TABLE tenure.migration (
    id integer NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone NOT NULL DEFAULT now(),
    CONSTRAINT migration_pkey PRIMARY KEY (id)
);

CREATE TABLE tenure.node_session (
    session_id uuid NOT NULL,
    node text NOT NULL,
    member text NOT NULL,
    gossip_addr text NOT NULL DEFAULT ''::text,
    version text NOT NULL DEFAULT ''::text,
    kinds text[] NOT NULL DEFAULT '{}'::text[],
    state text NOT NULL DEFAULT 'live'::text,
    hb_seq bigint NOT NULL DEFAULT 0,
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    last_seen timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamp with time zone NOT NULL,
    per_tenant integer,
    busy jsonb,
    CONSTRAINT node_session_bounds CHECK (((COALESCE(array_ndims(kinds), 1) = 1) AND (array_position(kinds, NULL::text) IS NULL) AND (expires_at <= (last_seen + '366 days'::interval)) AND ((hb_seq >= 0) AND (hb_seq <= '4000000000000000000'::bigint)))) NOT VALID,
    CONSTRAINT node_session_pkey PRIMARY KEY (session_id),
    CONSTRAINT node_session_state_check CHECK ((state = ANY (ARRAY['live'::text, 'left'::text, 'dead'::text]))),
    CONSTRAINT node_session_time CHECK ((isfinite(started_at) AND isfinite(last_seen) AND isfinite(expires_at)))
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=200);

CREATE TABLE tenure.operation (
    id uuid NOT NULL,
    action text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C",
    kind text COLLATE "C",
    error text,
    dead_group text COLLATE "C",
    died_before timestamp with time zone NOT NULL,
    per_second double precision,
    asked_by text NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    state text COLLATE "C" NOT NULL DEFAULT 'running'::text,
    ended_at timestamp with time zone,
    next_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    after_id bigint NOT NULL DEFAULT '-9223372036854775808'::bigint,
    done bigint NOT NULL DEFAULT 0,
    key_taken bigint NOT NULL DEFAULT 0,
    left_dead bigint NOT NULL DEFAULT 0,
    failure text,
    queue text COLLATE "C",
    job_state text COLLATE "C",
    tag text COLLATE "C",
    correlation_id text,
    pass integer NOT NULL DEFAULT 0,
    CONSTRAINT operation_action_check CHECK ((action = ANY (ARRAY['retry'::text, 'delete'::text, 'cancel'::text]))),
    CONSTRAINT operation_begun_check CHECK (((action <> 'cancel'::text) OR (state <> 'running'::text))),
    CONSTRAINT operation_bounds CHECK ((((next_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (next_at <= '10000-01-02 00:00:00+00'::timestamp with time zone)) AND (per_second <= (1000000000)::double precision))) NOT VALID,
    CONSTRAINT operation_ended_check CHECK (((state = ANY (ARRAY['running'::text, 'begun'::text])) = (ended_at IS NULL))),
    CONSTRAINT operation_per_second_check CHECK ((per_second > (0)::double precision)),
    CONSTRAINT operation_pkey PRIMARY KEY (id),
    CONSTRAINT operation_state_check CHECK ((state = ANY (ARRAY['running'::text, 'begun'::text, 'done'::text, 'cancelled'::text])))
);
CREATE INDEX operation_running ON tenure.operation USING btree (next_at) WHERE (state = 'running'::text);
CREATE INDEX operation_unended ON tenure.operation USING btree (next_at) WHERE (ended_at IS NULL);

CREATE TABLE tenure.pool (
    only_row boolean NOT NULL DEFAULT true,
    number integer NOT NULL,
    name text NOT NULL,
    oldest_program integer NOT NULL DEFAULT 55,
    storage_keeps_commits boolean NOT NULL DEFAULT false,
    notify boolean NOT NULL DEFAULT true,
    CONSTRAINT pool_number_check CHECK (((number >= 1) AND (number <= 65535))),
    CONSTRAINT pool_only_row_check CHECK (only_row),
    CONSTRAINT pool_pkey PRIMARY KEY (only_row)
);

CREATE TABLE tenure.rate_bucket (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    full_at timestamp with time zone NOT NULL,
    CONSTRAINT rate_bucket_bounds CHECK (((full_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (full_at <= '10000-01-02 00:00:00+00'::timestamp with time zone))) NOT VALID,
    CONSTRAINT rate_bucket_pkey PRIMARY KEY (tenant_id, scope, name)
) WITH (fillfactor=50);

CREATE TABLE tenure.runtime_user (
    user_name text COLLATE "C" NOT NULL,
    named_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT runtime_user_pkey PRIMARY KEY (user_name)
);

CREATE TABLE tenure.schedule (
    name text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}'::jsonb,
    spec text NOT NULL,
    time_zone text NOT NULL DEFAULT 'UTC'::text,
    paused boolean NOT NULL DEFAULT false,
    next_at timestamp with time zone,
    last_at timestamp with time zone,
    origin text NOT NULL DEFAULT 'set'::text,
    since timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    end_at timestamp with time zone,
    missed text NOT NULL DEFAULT 'one'::text,
    waits boolean NOT NULL DEFAULT false,
    jitter_ms bigint NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    meta jsonb,
    last_job bigint,
    kinds_queue boolean NOT NULL DEFAULT false,
    exclusive_key text COLLATE "C",
    external boolean NOT NULL DEFAULT false,
    CONSTRAINT schedule_bounds CHECK ((((jitter_ms >= 0) AND (jitter_ms <= 86400000)) AND ((next_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (next_at <= '10000-01-02 00:00:00+00'::timestamp with time zone)) AND (octet_length(tenant_id) <= 256) AND (octet_length(queue) <= 256) AND (octet_length(kind) <= 256))) NOT VALID,
    CONSTRAINT schedule_missed_check CHECK ((missed = ANY (ARRAY['skip'::text, 'one'::text, 'all'::text]))),
    CONSTRAINT schedule_origin_check CHECK ((origin = ANY (ARRAY['set'::text, 'config'::text, 'every'::text]))),
    CONSTRAINT schedule_pkey PRIMARY KEY (tenant_id, name)
);
CREATE INDEX schedule_next ON tenure.schedule USING btree (next_at) WHERE (NOT paused);

CREATE TABLE tenure.seen_tenant (
    tenant_id text COLLATE "C" NOT NULL,
    until timestamp with time zone NOT NULL,
    CONSTRAINT seen_tenant_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT seen_tenant_until_check CHECK (isfinite(until))
);

CREATE TABLE tenure.suspended_job (
    id bigint NOT NULL DEFAULT nextval('tenure.job_id'::regclass),
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    turn integer NOT NULL DEFAULT 0,
    timeout_ms integer,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    losses smallint NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    exclusive_key text COLLATE "C",
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    origin text NOT NULL,
    due_at timestamp with time zone,
    repeat text,
    end_at timestamp with time zone,
    suspended_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    resume_at timestamp with time zone,
    CONSTRAINT suspended_job_bounds CHECK ((((turn >= 0) AND (turn <= 2100000000)) AND ((attempt >= 0) AND (attempt <= 32000)) AND ((losses >= 0) AND (losses <= 32000)) AND (octet_length(tenant_id) <= 256) AND (octet_length(queue) <= 256) AND (octet_length(kind) <= 256) AND (octet_length(exclusive_key) <= 1024) AND (octet_length(unique_key) <= 1024) AND (octet_length(correlation_id) <= 1024))) NOT VALID,
    CONSTRAINT suspended_job_pkey PRIMARY KEY (id),
    CONSTRAINT suspended_job_time CHECK (((due_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (due_at <= '10000-01-02 00:00:00+00'::timestamp with time zone) AND (resume_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (resume_at <= '10000-01-02 00:00:00+00'::timestamp with time zone))) NOT VALID
);
CREATE INDEX suspended_job_correlation ON tenure.suspended_job USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX suspended_job_resume ON tenure.suspended_job USING btree (resume_at) WHERE (resume_at IS NOT NULL);

CREATE TABLE tenure.tenant (
    tenant_id text COLLATE "C" NOT NULL,
    schema_name text,
    role_name text,
    state text NOT NULL DEFAULT 'active'::text,
    weight integer NOT NULL DEFAULT 1,
    max_running integer,
    frozen boolean NOT NULL DEFAULT false,
    other_pool text,
    mover uuid,
    arrived bigint[] NOT NULL DEFAULT '{}'::bigint[],
    held boolean NOT NULL DEFAULT false,
    max_waiting integer,
    over_quota_at timestamp with time zone,
    CONSTRAINT tenant_bounds CHECK ((weight <= 100)) NOT VALID,
    CONSTRAINT tenant_goes_somewhere CHECK (((other_pool IS NOT NULL) OR (state <> ALL (ARRAY['moving'::text, 'moved'::text])))),
    CONSTRAINT tenant_max_waiting_check CHECK ((max_waiting > 0)),
    CONSTRAINT tenant_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenant_state_check CHECK ((state = ANY (ARRAY['active'::text, 'moving'::text, 'moved'::text, 'arriving'::text]))),
    CONSTRAINT tenant_weight_check CHECK ((weight > 0))
);
CREATE INDEX tenant_resting ON tenure.tenant USING btree (tenant_id) WHERE ((state <> 'active'::text) OR frozen);

CREATE TABLE tenure.tenant_role (
    tenant_id text COLLATE "C" NOT NULL,
    role_name text NOT NULL,
    CONSTRAINT tenant_role_pkey PRIMARY KEY (tenant_id)
);

CREATE TABLE tenure.timer_job (
    id bigint NOT NULL DEFAULT nextval('tenure.job_id'::regclass),
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    turn integer NOT NULL DEFAULT tenure.first_turn(),
    timeout_ms integer,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint,
    losses smallint NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    meta jsonb,
    exclusive_key text COLLATE "C",
    unique_key text COLLATE "C",
    correlation_id text COLLATE "C",
    due_at timestamp with time zone NOT NULL,
    repeat text,
    end_at timestamp with time zone,
    CONSTRAINT timer_job_bounds CHECK ((((turn >= 0) AND (turn <= 2100000000)) AND ((attempt >= 0) AND (attempt <= 32000)) AND ((losses >= 0) AND (losses <= 32000)) AND (octet_length(tenant_id) <= 256) AND (octet_length(queue) <= 256) AND (octet_length(kind) <= 256) AND (octet_length(exclusive_key) <= 1024) AND (octet_length(unique_key) <= 1024) AND (octet_length(correlation_id) <= 1024))) NOT VALID,
    CONSTRAINT timer_job_pkey PRIMARY KEY (id),
    CONSTRAINT timer_job_time CHECK (((due_at >= '1969-12-31 00:00:00+00'::timestamp with time zone) AND (due_at <= '10000-01-02 00:00:00+00'::timestamp with time zone))) NOT VALID
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX timer_job_correlation ON tenure.timer_job USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX timer_job_due ON tenure.timer_job USING btree (due_at);
CREATE INDEX timer_job_exclusive ON tenure.timer_job USING btree (tenant_id, exclusive_key) WHERE ((exclusive_key IS NOT NULL) AND (attempt > 0));
CREATE INDEX timer_job_tenant ON tenure.timer_job USING btree (tenant_id, due_at);

CREATE TABLE tenure.unique_job (
    tenant_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    CONSTRAINT unique_job_pkey PRIMARY KEY (tenant_id, key)
);

CREATE TABLE tenure.unique_period (
    tenant_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    free_at timestamp with time zone NOT NULL,
    CONSTRAINT unique_period_pkey PRIMARY KEY (tenant_id, key)
);
CREATE INDEX unique_period_free ON tenure.unique_period USING btree (free_at);

CREATE TABLE tenure.view_key (
    key uuid NOT NULL DEFAULT gen_random_uuid()
);

CREATE VIEW tenure.door AS
 SELECT NULL::text AS call,
    NULL::text AS tenant,
    NULL::text AS kind,
    NULL::jsonb AS payload,
    NULL::text AS queue,
    NULL::integer AS priority,
    NULL::timestamp with time zone AS run_at,
    NULL::interval AS delay,
    NULL::integer AS max_attempts,
    NULL::jsonb AS meta,
    NULL::text AS correlation_id,
    NULL::text AS unique_key,
    NULL::integer AS pool,
    NULL::boolean AS with_data,
    NULL::text AS exclusive_key,
    NULL::interval AS timeout,
    NULL::interval AS unique_for,
    NULL::text[] AS tags,
    NULL::bigint[] AS after_jobs,
    NULL::text AS on_failure,
    NULL::boolean AS as_batch,
    NULL::bigint AS in_batch,
    NULL::bigint AS job_id,
    NULL::boolean AS keep,
    NULL::text AS caller,
    NULL::bigint AS id,
    NULL::boolean AS duplicate,
    NULL::text AS refused,
    NULL::text AS other_pool,
    NULL::text AS answer
  WHERE false;
CREATE TRIGGER a_caller INSTEAD OF INSERT ON tenure.door FOR EACH ROW EXECUTE FUNCTION tenure.name_caller();
CREATE TRIGGER answer INSTEAD OF INSERT ON tenure.door FOR EACH ROW EXECUTE FUNCTION tenure.answer();

CREATE VIEW tenure.job_seen WITH (security_barrier=true) AS
 SELECT id,
    tenant_id,
    kind,
    queue,
    state,
    priority,
    attempt,
    max_attempts,
    created_at,
    due_at,
    error,
    unique_key,
    correlation_id,
    ((state <> ALL (ARRAY['dead'::text, 'done'::text, 'business_error'::text, 'cancelled'::text])) AND (EXISTS ( SELECT
           FROM cancel_request r
          WHERE (job_id = id)))) AS cancelling
   FROM ( SELECT id,
            tenant_id,
            kind,
            queue,
                CASE
                    WHEN (turn IS NULL) THEN 'waiting'::text
                    WHEN (started_at IS NULL) THEN 'claimed'::text
                    ELSE 'running'::text
                END AS state,
            priority,
            attempt,
            max_attempts,
            created_at,
            NULL::timestamp with time zone AS due_at,
            NULL::text AS error,
            unique_key,
            correlation_id
           FROM (job j
             LEFT JOIN ( SELECT id,
                    turn,
                    started_at
                   FROM (claim
                     CROSS JOIN LATERAL unnest(job_ids) run(id))) c ON (((id = id) AND (turn = turn))))
        UNION ALL
         SELECT id,
            tenant_id,
            kind,
            queue,
                CASE
                    WHEN (due_at = never()) THEN 'awaiting'::text
                    WHEN (attempt = 0) THEN 'scheduled'::text
                    ELSE 'retrying'::text
                END AS "case",
            priority,
            attempt,
            max_attempts,
            created_at,
            NULLIF(due_at, never()) AS "nullif",
            ( SELECT error
                   FROM job_error e
                  WHERE (job_id = id)
                  ORDER BY at DESC
                 LIMIT 1) AS error,
            unique_key,
            correlation_id
           FROM timer_job t
        UNION ALL
         SELECT id,
            tenant_id,
            kind,
            queue,
                CASE
                    WHEN (lock_expires_at > clock_timestamp()) THEN 'locked'::text
                    WHEN ((due_at IS NULL) OR (due_at <= clock_timestamp())) THEN 'waiting'::text
                    WHEN (attempt = 0) THEN 'scheduled'::text
                    ELSE 'retrying'::text
                END AS "case",
            priority,
            attempt,
            max_attempts,
            created_at,
            due_at,
                CASE
                    WHEN (attempt > 0) THEN ( SELECT error
                       FROM job_error e
                      WHERE (job_id = id)
                      ORDER BY at DESC
                     LIMIT 1)
                    ELSE NULL::text
                END AS "case",
            unique_key,
            correlation_id
           FROM external_job x
        UNION ALL
         SELECT id,
            tenant_id,
            kind,
            queue,
            'suspended'::text,
            priority,
            attempt,
            max_attempts,
            created_at,
            NULLIF(due_at, never()) AS "nullif",
            NULL::text,
            unique_key,
            correlation_id
           FROM suspended_job
        UNION ALL
         SELECT id,
            tenant_id,
            kind,
            queue,
            'dead'::text,
            priority,
            attempt,
            max_attempts,
            created_at,
            NULL::timestamp with time zone,
            error,
            unique_key,
            correlation_id
           FROM dead_letter_job
        UNION ALL
         SELECT id,
            tenant_id,
            kind,
            queue,
            outcome,
            priority,
            attempt,
            NULL::smallint,
            created_at,
            NULL::timestamp with time zone,
            NULL::text,
            unique_key,
            correlation_id
           FROM completed_job) s
  WHERE (( SELECT every
           FROM view_key k,
            LATERAL seen_by((CURRENT_USER)::text, key) v(every, tenants)) <> (tenant_id = ANY (( SELECT tenants
           FROM view_key k,
            LATERAL seen_by((CURRENT_USER)::text, key) v(every, tenants))::text[])));

CREATE VIEW tenure.job_status WITH (security_barrier=true) AS
 SELECT id,
    substr(tenant_id, 1) AS tenant,
    substr(kind, 1) AS kind,
    substr(queue, 1) AS queue,
    substr(state, 1) AS state,
    ((cancelling)::text)::boolean AS cancelling,
    ((priority)::text)::smallint AS priority,
    ((attempt)::text)::smallint AS attempt,
    ((max_attempts)::text)::smallint AS max_attempts,
    (created_at + '00:00:00'::interval) AS created_at,
    (due_at + '00:00:00'::interval) AS due_at,
    substr(error, 1) AS error,
    substr(unique_key, 1) AS unique_key,
    substr(correlation_id, 1) AS correlation_id
   FROM job_seen;

CREATE VIEW tenure.present_incarnation AS
 SELECT first_turn
   FROM incarnation
  WHERE ((server_started = pg_postmaster_start_time()) AND (xmin = written_by) AND (file = pg_relation_filepath('incarnation'::regclass)));
CREATE FUNCTION tenure.add_job(asked record, OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text) RETURNS record; -- 5339b423851056ee02282853f220ff7b, not for PUBLIC
CREATE FUNCTION tenure.add_linked_job(asked record, OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text) RETURNS record; -- b1542f54d60af8abba64957c1c9dfa1e, not for PUBLIC
CREATE FUNCTION tenure.answer() RETURNS trigger; -- 25c196215c6154308876ebf09d765769, not for PUBLIC
CREATE FUNCTION tenure.awaited_ends(id bigint) RETURNS jsonb; -- a71e4789dab360b3a8de329b1a163601
CREATE FUNCTION tenure.begin_incarnation(look boolean, OUT turn integer, OUT mended boolean) RETURNS record; -- 6ad13aff3449e9ca214f9c9a606f9595, not for PUBLIC
CREATE FUNCTION tenure.begin_tenant(schema_name text, role_name text, tenant_id text) RETURNS void; -- ca813cb81177bf72c252e7f14b6536ab
CREATE FUNCTION tenure.calls_itself(caller text) RETURNS boolean; -- 4612073d9392beadf307236039297414, not for PUBLIC
CREATE FUNCTION tenure.cancel(id bigint, keep boolean DEFAULT true) RETURNS text; -- 5d6302a9d7f16d04ed8e5cc756f1fa84
CREATE FUNCTION tenure.cancel_as(caller text, id bigint, keep boolean) RETURNS text; -- 83a47d798dc13f56c796912f492a970f, not for PUBLIC
CREATE FUNCTION tenure.close_dblink() RETURNS void; -- 43c357949d9bbdfc5b8da8585e472575
CREATE FUNCTION tenure.damage(value jsonb, printed boolean DEFAULT false) RETURNS text; -- 6dc688c89e533955e51182ce5795c1f3
CREATE FUNCTION tenure.drop_day(day date) RETURNS void; -- 2c6500dae0e73c360c6d718cc0f45e94, not for PUBLIC
CREATE FUNCTION tenure.empty_day(day date) RETURNS void; -- 1364be7f65be25e73aa1947fcb85bbf3, not for PUBLIC
CREATE FUNCTION tenure.enqueue(tenant text, kind text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, meta jsonb DEFAULT NULL::jsonb, correlation_id text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, pool integer DEFAULT NULL::integer, with_data boolean DEFAULT true, exclusive_key text DEFAULT NULL::text, timeout interval DEFAULT NULL::interval, unique_for interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text) RETURNS record; -- 89c6ffbee779d2fed359af176b96f826
CREATE FUNCTION tenure.enqueue_external(tenant text, topic text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, meta jsonb DEFAULT NULL::jsonb, correlation_id text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, pool integer DEFAULT NULL::integer, with_data boolean DEFAULT true, exclusive_key text DEFAULT NULL::text, unique_for interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text) RETURNS record; -- 3f14644716f24d784b4123be11b3a346
CREATE FUNCTION tenure.enqueue_fault(asked record) RETURNS text; -- bf6f8b0b9e108e90c339486828c1a7d6, not for PUBLIC
CREATE FUNCTION tenure.enqueue_key(tenant text, unique_key text, OUT id bigint, OUT duplicate boolean) RETURNS record; -- 4f037239b5c7a243aaf07aaa695a5b1c, not for PUBLIC
CREATE FUNCTION tenure.enqueue_linked(tenant text, kind text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, meta jsonb DEFAULT NULL::jsonb, correlation_id text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, pool integer DEFAULT NULL::integer, with_data boolean DEFAULT true, exclusive_key text DEFAULT NULL::text, timeout interval DEFAULT NULL::interval, unique_for interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], after_jobs bigint[] DEFAULT '{}'::bigint[], on_failure text DEFAULT 'wait'::text, as_batch boolean DEFAULT false, in_batch bigint DEFAULT NULL::bigint, OUT id bigint, OUT duplicate boolean, OUT refused text, OUT other_pool text) RETURNS record; -- a2648217dfa2ea54abd058835de604f4
CREATE FUNCTION tenure.enqueue_raise(caller text, tenant text, refused text, other_pool text) RETURNS void; -- 198d0385363ebcc1caedf6c5b82f1562, not for PUBLIC
CREATE FUNCTION tenure.enqueue_refusal(caller text, tenant text, keyed boolean, pool integer, with_data boolean, OUT refused text, OUT other_pool text) RETURNS record; -- 3cd866a46fc0c9de27fe87801a0f629b, not for PUBLIC
CREATE FUNCTION tenure.enter_tenant(schema_name text, role_name text, tenant_id text) RETURNS void; -- d4b61a4dc83133b44516f502ea476b1d
CREATE FUNCTION tenure.external_next(tenant text, topic text, most bigint, taking boolean) RETURNS SETOF bigint; -- 8208974908fa0956acee4849a631228f
CREATE FUNCTION tenure.external_room(tenant text, topic text) RETURNS bigint; -- 8ca1aa5b0d8598f42349debad6e0e941
CREATE FUNCTION tenure.finish_batch_in_tx(job_ids bigint[], job_turn integer, keep boolean) RETURNS void; -- f58f62002a3435978470b71b2b3546a5
CREATE FUNCTION tenure.finish_batch_in_tx(job_ids bigint[], job_turn integer, keep boolean, took_us bigint, node text) RETURNS void; -- bd9fc1a34c73b95bdcbf2002d962367c
CREATE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean) RETURNS void; -- bb483b0559fd7cc60ccb6c1287988d5b
CREATE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean, took_us bigint, node text) RETURNS void; -- 6a30141f7e397b5b799b6b81b3223f76
CREATE FUNCTION tenure.first_turn() RETURNS integer; -- a8e4d915c78c8320af343cc18617c60f
CREATE FUNCTION tenure.highest_id() RETURNS bigint; -- fed45c6f6b2446fac8801167c457e697
CREATE FUNCTION tenure.highest_position() RETURNS bigint; -- e9262998eb8d9d0aa3217a40e1abb094
CREATE FUNCTION tenure.incarnation() RETURNS integer; -- 958c0109d7075ac29dc9bce0d8eca513
CREATE FUNCTION tenure.index_tags(tenant text, id bigint, tags jsonb) RETURNS void; -- 32297a7bb600557204d9f20ff1bd9caf, not for PUBLIC
CREATE FUNCTION tenure.is_awaiting(job_id bigint) RETURNS boolean; -- 08ab43e5c2f3bbdc8adbf57385a3ae4b
CREATE FUNCTION tenure.is_unfinished(job_id bigint) RETURNS boolean; -- 5c2e315210421eb0dc66de549d1a8629
CREATE FUNCTION tenure.job_allowed(caller text, tenant text, privilege text, looks boolean) RETURNS boolean; -- 63e314788feb0e125e14b4535411e4d8, not for PUBLIC
CREATE FUNCTION tenure.job_changeable(caller text, tenant text, privilege text) RETURNS boolean; -- 4a90dee12f4a7012158512ddc8f5e3d3, not for PUBLIC
CREATE FUNCTION tenure.legible(value jsonb, printed boolean DEFAULT false) RETURNS jsonb; -- 351051a4802fee53075674895dfa63f6
CREATE FUNCTION tenure.make_day(day date) RETURNS void; -- 0ea47d406cd6298c133dc96769565dbb, not for PUBLIC
CREATE FUNCTION tenure.name_caller() RETURNS trigger; -- ae68a3df4acd874741ea89229a918919, not for PUBLIC
CREATE FUNCTION tenure.never() RETURNS timestamp with time zone; -- a4c1731e04738f73adb93b59308fa135
CREATE FUNCTION tenure.note_ends(job_ids bigint[], how text) RETURNS void; -- 4fcbbcd0f44c0fd999b4558138caa214
CREATE FUNCTION tenure.note_missed_ends(after_job bigint, after_awaiting bigint, most integer, OUT missed bigint, OUT last_job bigint, OUT last_awaiting bigint) RETURNS record; -- 7451a96fda56f93ea4320689d4a69848
CREATE FUNCTION tenure.notify_enqueued(job bigint, tenant text, queue text, priority integer, due timestamp with time zone) RETURNS void; -- 55b78fc017cbe16d13656d089da0dfdd, not for PUBLIC
CREATE FUNCTION tenure.notify_holder(tenant text, queue text, priority integer, due timestamp with time zone) RETURNS void; -- aa532336454bc8429a6e83c3fcc92ded, not for PUBLIC
CREATE FUNCTION tenure.open_external() RETURNS void; -- c03f913af53ef6f71ac078ce34d67483
CREATE FUNCTION tenure.require_claim(standing bigint) RETURNS void; -- f7b0da9ec345c329a2aa3a6014a3eccf
CREATE FUNCTION tenure.require_database(expected text) RETURNS void; -- 817aa81369449457359f9df733133334
CREATE FUNCTION tenure.retry(id bigint) RETURNS boolean; -- f041d5a3e1565a57d40c753d0f8ea0ba
CREATE FUNCTION tenure.retry_as(caller text, id bigint) RETURNS boolean; -- 4d0fd6fedac9fa18f1f71bdcf7c21bb1, not for PUBLIC
CREATE FUNCTION tenure.retry_external(id bigint) RETURNS boolean; -- 4f71e16541798097613e06eef371e647, not for PUBLIC
CREATE FUNCTION tenure.seen_by(caller text, key uuid, OUT every boolean, OUT tenants text[]) RETURNS record; -- 65d6ebb91173982c0551c4201eb1227f
CREATE FUNCTION tenure.sequences_behind(OUT id bigint, OUT place bigint) RETURNS record; -- be4d52ea786e651e33d70eaf70e45b06
CREATE FUNCTION tenure.server_state(OUT server text, OUT timeline integer, OUT refused text, OUT owner text) RETURNS record; -- 58e5d75f8ba074a4a5d284f2c6f227d6
CREATE FUNCTION tenure.settle_awaited(holder uuid, epoch bigint, most integer, keep boolean, OUT taken bigint, OUT started bigint, OUT cancelled bigint, OUT awaits boolean) RETURNS record; -- efb5dc6b171ec56d5fd5be0175e428a8
CREATE FUNCTION tenure.shut_external() RETURNS void; -- 14e8564a27dc571db0214f6e8af7b9ae
CREATE FUNCTION tenure.take_key(tenant text, unique_key text, unique_for interval, OUT id bigint, OUT duplicate boolean) RETURNS record; -- e5b1495ebde774cdb10451cf81281cc2, not for PUBLIC
CREATE FUNCTION tenure.tenant_of_role(name text) RETURNS text; -- 2ad234af9fc1972ae1c29156859be998
CREATE FUNCTION tenure.trim_audit(kept interval, most integer) RETURNS integer; -- 3455b030fc89453414580d1bb883923b, not for PUBLIC
CREATE FUNCTION tenure.unanswered() RETURNS void; -- 35476afaccb296bd57349619a4409364
CREATE FUNCTION tenure.write_reports(reports jsonb, node text) RETURNS void; -- 90f648f01b79f42e3bde47edcb7ccb4d
CREATE FUNCTION tenure.write_reports_in_tx(reports text, node text) RETURNS void; -- 0cd67e19a828e229f1767caddff20e18
GRANT USAGE ON SCHEMA tenure TO PUBLIC;
GRANT INSERT (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags, after_jobs, on_failure, as_batch, in_batch, job_id, keep) ON tenure.door TO PUBLIC;
GRANT SELECT (id, duplicate, refused, other_pool, answer) ON tenure.door TO PUBLIC;
GRANT SELECT ON tenure.job_status TO PUBLIC;
