-- What a report of a run is fenced by, (id, turn), is never given out twice, whatever
-- made the sequences fall back; and a position is never drawn before its transaction has
-- an id. Adds objects and changes defaults, which rewrites nothing; changing a default
-- waits for running transactions on the table for a moment.

-- +goose Up

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

-- The first turn of the present incarnation; 0: none has begun, or this is a standby,
-- where an unlogged table must not be read. The functions that each insert and claim call
-- have no SET search_path, which would cost a quarter more: nothing in them goes by it.
-- +goose StatementBegin
CREATE FUNCTION tenure.incarnation() RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    turn integer;
BEGIN
    IF pg_catalog.pg_is_in_recovery() THEN
        RETURN 0;
    END IF;
    SELECT p.first_turn INTO turn FROM tenure.present_incarnation p LIMIT 1;
    RETURN coalesce(turn, 0);
END
$$;
-- +goose StatementEnd

-- The first turn of a job that is inserted now: that of the present incarnation, so that
-- the jobs of a batch share one. Between a crash and the moment in which a node begins the
-- next incarnation, a turn of this transaction's own, from another range; nobody waits or
-- writes for it. SECURITY DEFINER, so that whoever may insert jobs needs no other privilege.
-- +goose StatementBegin
CREATE FUNCTION tenure.first_turn() RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    turn integer;
BEGIN
    SELECT p.first_turn INTO turn FROM tenure.present_incarnation p LIMIT 1;
    IF turn IS NULL THEN
        turn := 1600000000 OPERATOR(pg_catalog.+) (pg_catalog.hashtextextended(pg_catalog.now()::pg_catalog.text,
            pg_catalog.pg_backend_pid()) OPERATOR(pg_catalog.&) 268435455);
    END IF;
    RETURN turn;
END
$$;
-- +goose StatementEnd

-- The highest position among the waiting jobs, by skipping from lane to lane.
-- +goose StatementBegin
CREATE FUNCTION tenure.highest_position() RETURNS bigint
    LANGUAGE sql STABLE SET search_path = '' AS $$
    WITH RECURSIVE lane AS (
        (SELECT queue, tenant_id, priority FROM tenure.job ORDER BY queue, tenant_id, priority LIMIT 1)
        UNION ALL
        SELECT next.queue, next.tenant_id, next.priority
        FROM lane CROSS JOIN LATERAL (
            SELECT j.queue, j.tenant_id, j.priority FROM tenure.job j
            WHERE (j.queue, j.tenant_id, j.priority) > (lane.queue, lane.tenant_id, lane.priority)
            ORDER BY j.queue, j.tenant_id, j.priority
            LIMIT 1) AS next)
    SELECT max(last.position)
    FROM lane CROSS JOIN LATERAL (
        SELECT j.position FROM tenure.job j
        WHERE j.queue = lane.queue AND j.tenant_id = lane.tenant_id AND j.priority = lane.priority
        ORDER BY j.position DESC
        LIMIT 1) AS last;
$$;
-- +goose StatementEnd

-- The highest id among the unfinished jobs that were made in this pool.
-- +goose StatementBegin
CREATE FUNCTION tenure.highest_id() RETURNS bigint
    LANGUAGE sql STABLE SET search_path = '' AS $$
    SELECT greatest(
        own.first,
        (SELECT max(id) FROM tenure.job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.timer_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.external_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.history_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.suspended_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.dead_letter_job WHERE id < own.first + (1::bigint << 46)))
    FROM (SELECT number::bigint << 47 AS first FROM tenure.pool) AS own;
$$;
-- +goose StatementEnd

-- Up to where the sequences are behind what stands in the tables; null: they are not. The
-- tables are read first, so that what is inserted meanwhile does not look like it.
-- +goose StatementBegin
CREATE FUNCTION tenure.sequences_behind(OUT id bigint, OUT place bigint)
    LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
    id := tenure.highest_id();
    place := tenure.highest_position();
    IF id < (SELECT last_value + is_called::integer FROM tenure.job_id) THEN
        id := NULL;
    END IF;
    IF place < (SELECT last_value + is_called::integer FROM tenure.job_position) THEN
        place := NULL;
    END IF;
END
$$;
-- +goose StatementEnd

-- Begins an incarnation unless one has begun, and returns its first turn. With look it
-- also looks whether sequences have fallen behind what stands in the tables, which may take
-- long; if so it sets them ahead, by more than anybody can draw in between, and ends the
-- incarnation that had begun: mended.
--
-- Nobody who enqueues waits for this: readers pass the lock. The commit is waited for
-- whatever the session says, so that the moment does not fall back with a crash, but not
-- for standbys. Ids of claims begin where the moment is, too, and so never repeat.
-- +goose StatementBegin
CREATE FUNCTION tenure.begin_incarnation(look boolean, OUT turn integer, OUT mended boolean)
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
                   greatest(moment << 12, (SELECT max(c.id) FROM tenure.claim c)));
    turn := 1 + moment % 1600000000;
    DELETE FROM tenure.incarnation;
    INSERT INTO tenure.incarnation (first_turn, written_by, server_started, file)
    VALUES (turn, pg_current_xact_id()::xid, pg_postmaster_start_time(), pg_relation_filepath('tenure.incarnation'));
    PERFORM pg_sleep(1.0 / 32); -- so that no other can begin in a moment in which this one was used
END
$$;
-- +goose StatementEnd

-- It takes a lock: for those who may take the acquire lock, and not for tenants' roles.
REVOKE EXECUTE ON FUNCTION tenure.begin_incarnation(boolean) FROM PUBLIC;
-- +goose StatementBegin
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'tenure.acquire_lock'::regclass AND a.privilege_type = 'UPDATE'
    LOOP
        EXECUTE 'GRANT EXECUTE ON FUNCTION tenure.begin_incarnation(boolean) TO ' || grantee;
    END LOOP;
END
$$;
-- +goose StatementEnd

ALTER TABLE tenure.job ALTER COLUMN turn SET DEFAULT tenure.first_turn();
ALTER TABLE tenure.timer_job ALTER COLUMN turn SET DEFAULT tenure.first_turn();
ALTER TABLE tenure.external_job ALTER COLUMN turn SET DEFAULT tenure.first_turn();
ALTER TABLE tenure.history_job ALTER COLUMN turn SET DEFAULT tenure.first_turn();

-- Whoever has drawn a position has an id already: an INSERT alone would draw it first and
-- get its id with the row, after a payload that may take long to work out. So whoever gets
-- an id after the last position was read has a higher position than that. An expression
-- and not a function of ours, which costs ten times as much.
ALTER TABLE tenure.job ALTER COLUMN position
    SET DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tenure.job_position') END;
ALTER TABLE tenure.external_job ALTER COLUMN position
    SET DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tenure.job_position') END;
ALTER TABLE tenure.history_job ALTER COLUMN position
    SET DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('tenure.job_position') END;

-- For programs before this one, which begin none.
SELECT tenure.begin_incarnation(false);

-- +goose Down
ALTER TABLE tenure.job ALTER COLUMN position SET DEFAULT nextval('tenure.job_position');
ALTER TABLE tenure.external_job ALTER COLUMN position SET DEFAULT nextval('tenure.job_position');
ALTER TABLE tenure.history_job ALTER COLUMN position SET DEFAULT nextval('tenure.job_position');
ALTER TABLE tenure.job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
ALTER TABLE tenure.timer_job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
ALTER TABLE tenure.external_job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
ALTER TABLE tenure.history_job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
DROP FUNCTION tenure.begin_incarnation(boolean), tenure.first_turn(), tenure.incarnation(),
    tenure.sequences_behind(), tenure.highest_id(), tenure.highest_position();
DROP VIEW tenure.present_incarnation;
DROP TABLE tenure.incarnation;
DROP SEQUENCE tenure.incarnation_moment;
