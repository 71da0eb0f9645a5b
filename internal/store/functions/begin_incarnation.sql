-- Begins an incarnation unless one has begun, and returns its first turn. With look it
-- also looks whether sequences have fallen behind what stands in the tables, which may take
-- long; if so it sets them ahead, by more than anybody can draw in between, and ends the
-- incarnation that had begun: mended.
--
-- Nobody who enqueues waits for this: readers pass the lock. The commit is waited for
-- whatever the session says, so that the moment does not fall back with a crash, but not
-- for standbys. Ids of claims begin where the moment is, and never go back: not below the
-- sequence's own last value either, should that be ahead of the moment while no claim stands.
--
-- It takes a lock: for those who may take the acquire lock, and not for tenants' roles.
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
REVOKE EXECUTE ON FUNCTION tenure.begin_incarnation FROM PUBLIC;
