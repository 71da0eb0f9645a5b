-- Two functions without a mistake each; what calls them sees no other difference, so the
-- programs of before go on with these. Replacing a function keeps its owner and who may
-- execute it, takes effect with the next call, and locks nothing that others wait for.

-- +goose Up

-- As in 0004, but that ids of claims never go back: not below the sequence's own last
-- value either, should that be ahead of the moment while no claim stands.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.begin_incarnation(look boolean, OUT turn integer, OUT mended boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
    ahead CONSTANT bigint := 1 << 20;
    id     bigint;
    place  bigint;
    before bigint;
    moment bigint;
BEGIN
    turn := tenure.incarnation();
    SELECT b.id, b.place INTO id, place FROM tenure.sequences_behind() b WHERE look;
    mended := id IS NOT NULL OR place IS NOT NULL;
    IF turn > 0 AND NOT mended THEN
        RETURN;
    END IF;
    LOCK TABLE tenure.incarnation IN SHARE ROW EXCLUSIVE MODE;
    turn := tenure.incarnation(); -- another session may have been quicker
    SELECT b.id, b.place INTO id, place FROM tenure.sequences_behind() b WHERE look;
    mended := id IS NOT NULL OR place IS NOT NULL;
    IF turn > 0 AND NOT mended THEN
        RETURN;
    END IF;
    PERFORM setval('tenure.job_id', id + ahead) WHERE id IS NOT NULL;
    PERFORM setval('tenure.job_position', place + ahead) WHERE place IS NOT NULL;
    PERFORM set_config('synchronous_commit', 'local', true);
    moment := floor(extract(epoch FROM clock_timestamp() - timestamptz '2026-01-01 00:00:00+00') * 32);
    before := (SELECT last_value FROM tenure.incarnation_moment);
    IF moment <= before THEN -- the clock was set back; at random, as it may fall back to before once more
        moment := before + 4096 + floor(random() * 4096)::bigint;
    END IF;
    PERFORM setval('tenure.incarnation_moment', moment);
    PERFORM setval(pg_get_serial_sequence('tenure.claim', 'id'),
                   greatest(moment << 12, (SELECT max(c.id) FROM tenure.claim c),
                            pg_sequence_last_value(pg_get_serial_sequence('tenure.claim', 'id'))));
    turn := 1 + moment % 1600000000;
    DELETE FROM tenure.incarnation;
    INSERT INTO tenure.incarnation (first_turn, written_by, server_started, file)
    VALUES (turn, pg_current_xact_id()::xid, pg_postmaster_start_time(), pg_relation_filepath('tenure.incarnation'));
    PERFORM pg_sleep(1.0 / 32); -- so that no other can begin in a moment in which this one was used
END
$$;
-- +goose StatementEnd

-- As in 0006, but that the time is worked out behind the check of the arguments: a delay of
-- 300,000 years is 22023, an argument that cannot be, and no overflow.
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
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    fault  CONSTANT text := tenure.enqueue_fault(tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta, correlation_id, unique_key);
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
        INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key);
    ELSE
        INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due_at)
        VALUES (id, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key, due);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
SELECT 1; -- the functions of before are called in the same way, and these are right for them, too
