-- Jobs that start when others have ended: batches and chains. Three new tables, to which the
-- statements that end jobs add; functions of before are replaced by ones that do so, too. Programs
-- of before go on working. They see a job that awaits others as one that is scheduled for the year
-- 2300, and the ends of jobs that they write are found by the holder's look, within a minute.

-- +goose Up

-- When a timer is due whose time is not known: a job that awaits others. Programs of before take it
-- for a time like any other, which is why it is one that they can count to.
CREATE OR REPLACE FUNCTION tenure.never() RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT timestamptz '2300-01-01 00:00:00.000046+00' $$;

-- Jobs that start when others have ended. Meanwhile they are timers that are never due.
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

-- Who works on jobs does so on these, too: programs of before end jobs by functions that add to them.
-- +goose StatementBegin
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'tenure.claim'::regclass AND a.privilege_type = 'DELETE' AND a.grantee <> c.relowner
    LOOP
        EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.awaiting, tenure.awaited, tenure.awaited_end TO ' || grantee;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Notes how jobs have ended that some other job awaits. It is a statement of its own behind the one
-- that ended them, or a job that came to await one of them in between would not be seen: whoever has
-- a job await another keeps that one's row from being removed until he commits. Called by the statement
-- itself it is one, too: each of its own has a snapshot of its own, in which what the caller has
-- removed is gone. A job is noted as
-- done or cancelled only if it stands nowhere, and as dead only if it does among the dead letters: a
-- report about a run that had lost its claim has ended nothing. Its settings are those of who calls
-- it, as to set them would take longer than all that it does when nothing is awaited.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.note_ends(job_ids bigint[], how text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    -- Where nobody uses batches the table has no page. Else these jobs alone are asked about: rows of others
    -- that have ended may be many, and not removed for long.
    IF pg_relation_size('tenure.awaited') = 0 THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM tenure.awaited a WHERE a.job_id = ANY (job_ids) AND a.outcome IS NULL) THEN
        RETURN;
    END IF;
    INSERT INTO tenure.awaited_end (tenant_id, job_id, outcome)
    SELECT o.tenant_id, s.id, how
    FROM unnest(job_ids) AS s (id)
    CROSS JOIN LATERAL (SELECT a.tenant_id FROM tenure.awaited a WHERE a.job_id = s.id AND a.outcome IS NULL LIMIT 1) o
    WHERE NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = s.id)
      AND NOT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = s.id)
      AND NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.id = s.id)
      AND NOT EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = s.id)
      AND (how = 'dead') = EXISTS (SELECT FROM tenure.dead_letter_job j WHERE j.id = s.id);
END
$$;
-- +goose StatementEnd

-- Whether a job awaits others, be it suspended meanwhile.
CREATE FUNCTION tenure.is_awaiting(job_id bigint) RETURNS boolean
    LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = is_awaiting.job_id AND j.due_at = tenure.never())
    OR EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = is_awaiting.job_id AND j.due_at = tenure.never())
$$;

-- Adds one job as tenure.enqueue does, with what links it to others of its tenant. It starts when the
-- jobs of after_jobs have ended, or, as the completion job of a batch, those that are added with
-- in_batch. A job of after_jobs is kept from ending until this transaction ends. refused is, besides
-- what tenure.enqueue says, 'no job' or 'no batch', with the id in other_pool; without pool that is raised.
-- +goose StatementBegin
CREATE FUNCTION tenure.enqueue_linked(
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
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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
    FROM tenure.enqueue(tenant, kind, payload, queue, priority,
        CASE WHEN awaits THEN tenure.never() ELSE run_at END, CASE WHEN NOT awaits THEN delay END,
        max_attempts, meta, correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags) e;
    IF refused IS NOT NULL OR duplicate THEN
        RETURN;
    END IF;
    IF (in_batch IS NOT NULL OR cardinality(missing) > 0)
       AND EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = enqueue_linked.tenant AND t.state = 'arriving') THEN
        refused := 'arriving'; -- not all that it may be linked to is here yet
        RAISE EXCEPTION USING ERRCODE = 'TN007';
    END IF;
    IF in_batch IS NOT NULL THEN
        PERFORM FROM tenure.awaiting w
        WHERE w.job_id = in_batch AND w.tenant_id = enqueue_linked.tenant AND w.batch AND w.closed_at IS NULL
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
        WITH w AS (SELECT j.id FROM tenure.job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked.tenant ORDER BY j.id FOR KEY SHARE),
        t AS (SELECT j.id FROM tenure.timer_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked.tenant ORDER BY j.id FOR KEY SHARE),
        x AS (SELECT j.id FROM tenure.external_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked.tenant ORDER BY j.id FOR KEY SHARE),
        s AS (SELECT j.id FROM tenure.suspended_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked.tenant ORDER BY j.id FOR KEY SHARE),
        d AS (SELECT j.id FROM tenure.dead_letter_job j WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked.tenant ORDER BY j.id FOR KEY SHARE),
        c AS (SELECT DISTINCT ON (j.id) j.id, CASE j.outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END AS outcome FROM tenure.completed_job j
              WHERE j.id = ANY (missing) AND j.tenant_id = enqueue_linked.tenant ORDER BY j.id, j.finished_at DESC),
        noted AS (
            INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id, outcome)
            SELECT enqueue_linked.tenant, enqueue_linked.id, f.id, f.outcome
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

-- Who may add jobs may add such.
-- +goose StatementBegin
DO $$
DECLARE
    single CONSTANT regprocedure := 'tenure.enqueue(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[])';
    linked CONSTANT regprocedure := 'tenure.enqueue_linked(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[], bigint[], text, boolean, bigint)';
    may    record;
BEGIN
    EXECUTE (SELECT format('ALTER FUNCTION %s OWNER TO %I', linked, pg_get_userbyid(p.proowner)) FROM pg_proc p WHERE p.oid = single);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', linked);
    FOR may IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee, a.is_grantable
        FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE p.oid = single AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', linked, may.grantee) || CASE WHEN may.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Takes in up to most ends of awaited jobs, under the fence: notes them, and has those jobs start
-- that await no others any more, or cancels them, as their on_failure says. A job starts by having
-- its time set, with which the ends go into its meta. One that somebody adds to, or whose row somebody
-- has locked, is noted again, for the next time. Nothing is done when the lock is lost. awaits: there are
-- jobs that await others.
-- +goose StatementBegin
CREATE FUNCTION tenure.settle_awaited(holder uuid, epoch bigint, most integer, keep boolean,
        OUT taken bigint, OUT started bigint, OUT cancelled bigint, OUT awaits boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    touched  bigint[];
    asked    bigint[];
    complete bigint[];
    unwanted bigint[];
    standing bigint[];
    free     bigint[];
BEGIN
    taken := 0;
    started := 0;
    cancelled := 0;
    awaits := EXISTS (SELECT FROM tenure.awaiting w WHERE w.closed_at IS NULL);
    PERFORM FROM tenure.acquire_lock l
    WHERE l.name = 'acquire' AND l.holder = settle_awaited.holder AND l.epoch = settle_awaited.epoch
      AND NOT l.paused AND l.expires_at > clock_timestamp()
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM tenure.awaited_end e
        WHERE e.id = ANY (ARRAY(
            SELECT f.id FROM tenure.awaited_end f
            WHERE f.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
            ORDER BY f.id LIMIT most
            FOR UPDATE SKIP LOCKED))
        RETURNING e.id, e.job_id, e.outcome, e.awaiting_id),
    first AS ( -- the one that ends the waiting: a dead letter may be retried, or was meanwhile
        SELECT DISTINCT ON (a.awaiting_id, a.job_id) a.awaiting_id, a.job_id, g.outcome
        FROM gone g
        CROSS JOIN LATERAL (SELECT o.awaiting_id, o.job_id FROM tenure.awaited o WHERE o.job_id = g.job_id AND o.outcome IS NULL OFFSET 0) a
        JOIN tenure.awaiting w ON w.job_id = a.awaiting_id
        WHERE g.outcome <> 'dead' OR w.on_failure <> 'wait' AND EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = g.job_id)
        ORDER BY a.awaiting_id, a.job_id, g.id),
    noted AS (
        UPDATE tenure.awaited a SET outcome = f.outcome FROM first f
        WHERE a.job_id = f.job_id AND a.awaiting_id + 0 = f.awaiting_id -- found by the job: a batch may have a million
        RETURNING a.awaiting_id)
    SELECT (SELECT count(*) FROM gone),
           ARRAY(SELECT n.awaiting_id FROM noted n UNION SELECT g.awaiting_id FROM gone g WHERE g.awaiting_id IS NOT NULL)
    INTO taken, asked;
    IF cardinality(asked) = 0 THEN
        RETURN;
    END IF;
    touched := ARRAY(SELECT w.job_id FROM tenure.awaiting w WHERE w.job_id = ANY (asked) AND w.closed_at IS NULL FOR UPDATE SKIP LOCKED);
    -- From here on nobody adds to them, and what was added can be seen.
    standing := ARRAY(SELECT w.id FROM unnest(touched) AS w (id) WHERE tenure.is_awaiting(w.id));
    unwanted := ARRAY(
        SELECT w.job_id FROM tenure.awaiting w
        WHERE w.job_id = ANY (touched) AND w.on_failure <> 'run'
          AND EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = w.job_id AND a.outcome IN ('dead', 'cancelled')));
    complete := ARRAY(
        SELECT w.id FROM unnest(touched) AS w (id)
        WHERE w.id <> ALL (unwanted)
          AND (w.id <> ALL (standing) -- it was started or given a time by hand, or has ended
               OR NOT EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = w.id AND a.outcome IS NULL)));
    free := ARRAY(SELECT j.id FROM tenure.timer_job j WHERE j.id = ANY (standing) AND j.due_at = tenure.never() FOR UPDATE SKIP LOCKED)
         || ARRAY(SELECT j.id FROM tenure.suspended_job j WHERE j.id = ANY (standing) AND j.due_at = tenure.never() FOR UPDATE SKIP LOCKED);
    UPDATE tenure.awaiting w SET closed_at = clock_timestamp()
    WHERE w.job_id = ANY (unwanted || complete) AND (w.job_id = ANY (free) OR w.job_id <> ALL (standing));
    asked := ARRAY(SELECT a.id FROM unnest(asked) AS a (id) WHERE a.id <> ALL (touched)
                   UNION ALL SELECT a.id FROM unnest(unwanted || complete) AS a (id) WHERE a.id = ANY (standing) AND a.id <> ALL (free));
    INSERT INTO tenure.awaited_end (tenant_id, awaiting_id)
    SELECT w.tenant_id, w.job_id FROM tenure.awaiting w WHERE w.job_id = ANY (asked) AND w.closed_at IS NULL; -- somebody has locked them
    unwanted := ARRAY(SELECT u.id FROM unnest(unwanted) AS u (id) WHERE u.id = ANY (free));
    complete := ARRAY(SELECT c.id FROM unnest(complete) AS c (id) WHERE c.id = ANY (free));
    UPDATE tenure.timer_job j SET due_at = clock_timestamp(), meta = coalesce(j.meta, '{}') || tenure.awaited_ends(j.id) WHERE j.id = ANY (complete);
    UPDATE tenure.suspended_job j SET due_at = clock_timestamp(), meta = coalesce(j.meta, '{}') || tenure.awaited_ends(j.id) WHERE j.id = ANY (complete);
    PERFORM tenure.cancel(u.id, keep) FROM unnest(unwanted) AS u (id);
    started := cardinality(complete);
    cancelled := cardinality(unwanted);
END
$$;
-- +goose StatementEnd

-- How the jobs ended that a job has awaited, for its meta.
CREATE FUNCTION tenure.awaited_ends(id bigint) RETURNS jsonb
    LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object('tenure.awaited', jsonb_build_object(
    'done', count(*) FILTER (WHERE a.outcome = 'done'),
    'dead', count(*) FILTER (WHERE a.outcome = 'dead'),
    'cancelled', count(*) FILTER (WHERE a.outcome = 'cancelled'),
    'unknown', count(*) FILTER (WHERE a.outcome = 'unknown')))
FROM tenure.awaited a WHERE a.awaiting_id = awaited_ends.id
$$;

-- The holder's look for what was not noted: it goes on behind (after_job, after_awaiting) through
-- those that are awaited, at most so many, and notes the ends of jobs that stand nowhere any more, as
-- after a program of before this release has ended them. How one ended whose finished job was not
-- kept is unknown, which is no failure.
-- +goose StatementBegin
CREATE FUNCTION tenure.note_missed_ends(after_job bigint, after_awaiting bigint, most integer,
        OUT missed bigint, OUT last_job bigint, OUT last_awaiting bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = on SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    WITH page AS MATERIALIZED (
        SELECT a.tenant_id, a.awaiting_id, a.job_id FROM tenure.awaited a
        WHERE a.outcome IS NULL AND (a.job_id, a.awaiting_id) > (after_job, after_awaiting)
        ORDER BY a.job_id, a.awaiting_id LIMIT most),
    ended AS (
        SELECT p.tenant_id, p.job_id, w.on_failure,
               EXISTS (SELECT FROM tenure.dead_letter_job j WHERE j.id = p.job_id) AS dead
        FROM page p JOIN tenure.awaiting w ON w.job_id = p.awaiting_id
        WHERE p.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
          AND NOT tenure.is_unfinished(p.job_id)
          AND p.job_id NOT IN (SELECT e.job_id FROM tenure.awaited_end e WHERE e.job_id IS NOT NULL)),
    noted AS (
        INSERT INTO tenure.awaited_end (tenant_id, job_id, outcome)
        SELECT DISTINCT e.tenant_id, e.job_id, CASE WHEN e.dead THEN 'dead' ELSE coalesce(
            (SELECT CASE c.outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END FROM tenure.completed_job c
             WHERE c.id = e.job_id ORDER BY c.finished_at DESC LIMIT 1), 'unknown') END
        FROM ended e WHERE NOT e.dead OR e.on_failure <> 'wait'
        RETURNING 1)
    SELECT (SELECT count(*) FROM noted), l.job_id, l.awaiting_id INTO missed, last_job, last_awaiting
    FROM (SELECT count(*) AS n FROM page) p
    LEFT JOIN (SELECT q.awaiting_id, q.job_id FROM page q ORDER BY q.job_id DESC, q.awaiting_id DESC LIMIT 1) l ON p.n = most;
END
$$;
-- +goose StatementEnd

-- As in 0018, but that it notes ends that are awaited.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone record;
BEGIN
    DELETE FROM tenure.job j WHERE j.id = job_id AND j.turn = job_turn
    RETURNING j.created_at, j.priority, j.attempt, j.losses, j.tenant_id, j.queue, j.kind, j.payload, j.meta, j.unique_key, j.correlation_id,
        clock_timestamp() AS ended_at
    INTO gone;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
    IF keep THEN
        INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
            tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
        VALUES (job_id, gone.created_at, gone.ended_at, job_turn, gone.priority, gone.attempt + 1, gone.losses,
            gone.tenant_id, gone.queue, gone.kind, 'done', gone.payload, gone.meta, gone.unique_key, gone.correlation_id,
            gone.ended_at - took_us * interval '1 microsecond', finish_in_tx.node);
    END IF;
    IF gone.unique_key IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = finish_in_tx.job_id;
    END IF;
    PERFORM tenure.note_ends(ARRAY[job_id], 'done');
END
$$;
-- +goose StatementEnd

-- Likewise.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.finish_batch_in_tx(job_ids bigint[], job_turn integer, keep boolean, took_us bigint, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ended    record;
    ended_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    WITH gone AS (
        DELETE FROM tenure.job j WHERE j.id = ANY (job_ids) AND j.turn = job_turn
        RETURNING j.id, j.created_at, j.priority, j.attempt, j.losses, j.tenant_id, j.queue, j.kind, j.payload, j.meta, j.unique_key, j.correlation_id),
    kept AS (
        INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
            tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
        SELECT id, created_at, ended_at, job_turn, priority, attempt + 1, losses,
            tenant_id, queue, kind, 'done', payload, meta, unique_key, correlation_id,
            ended_at - took_us * interval '1 microsecond', finish_batch_in_tx.node
        FROM gone WHERE keep)
    SELECT count(*) AS jobs, min(tenant_id) AS tenant, array_agg(unique_key) FILTER (WHERE unique_key IS NOT NULL) AS keys
    INTO ended FROM gone;
    IF ended.jobs < cardinality(job_ids) THEN
        RAISE EXCEPTION 'the claim on % of these % jobs was lost', cardinality(job_ids) - ended.jobs, cardinality(job_ids)
            USING ERRCODE = 'TN001';
    END IF;
    IF ended.keys IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = ended.tenant AND u.key = ANY (ended.keys) AND u.job_id = ANY (job_ids);
    END IF;
    PERFORM tenure.note_ends(job_ids, 'done');
END
$$;
-- +goose StatementEnd

-- As in 0022, but that it notes ends that are awaited.
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
            PERFORM tenure.note_ends(ARRAY[gone.id], 'cancelled');
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

-- As in 0022, with one more state: a job that awaits others is awaiting.
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
WHERE (SELECT tenure.job_allowed(NULL, 'SELECT')) -- asked once
   OR tenure.job_allowed(s.tenant_id, 'SELECT');

-- +goose Down
-- What the functions and the view of before call stays: they need not be replaced.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.note_ends(job_ids bigint[], how text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
END
$$;
-- +goose StatementEnd
DROP FUNCTION tenure.is_awaiting(bigint);
DROP FUNCTION tenure.note_missed_ends(bigint, bigint, integer);
DROP FUNCTION tenure.settle_awaited(uuid, bigint, integer, boolean);
DROP FUNCTION tenure.awaited_ends(bigint);
DROP FUNCTION tenure.enqueue_linked(text, text, jsonb, text, integer, timestamptz, interval, integer, jsonb, text, text, integer, boolean, text, interval, interval, text[], bigint[], text, boolean, bigint);
DROP TABLE tenure.awaited_end;
DROP TABLE tenure.awaited;
DROP TABLE tenure.awaiting;
