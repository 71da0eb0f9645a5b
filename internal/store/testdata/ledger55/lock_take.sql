-- Takes the acquire lock, or says who has it. One row always comes back.
-- $1 session, $2 member, $3 ttl in ms, $4 the renew_seq the caller saw stand still
-- (-1: none), $5 whether the holder is gone: gossip says so, or that it does not reach the
-- database, or the caller has itself seen the lock stand still for too long, as reserved
-- or as held.
--
-- Free to take: a lock of my own whose answer got lost; a released one that is not
-- reserved for another member; an expired one that nobody renewed since the caller
-- looked, so that a jump of the database's clock alone never robs a live holder;
-- and one whose holder is gone and whose renewals the caller saw stand still, whatever
-- the clock says, which may have been set back. The epoch follows the clock, so that it
-- does not repeat when a fail-over loses the last take.
--
-- A take is noted in the lock's history, of which the newest five hundred epochs stay. Rows of it
-- that somebody else has locked are left for the next take.
WITH taken AS (
    UPDATE tenure.acquire_lock AS l
    SET epoch = greatest(l.epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        holder = $1, holder_member = $2,
        taken_at = clock_timestamp(), renewed_at = clock_timestamp(),
        expires_at = clock_timestamp() + $3::bigint * interval '1 ms',
        renew_seq = l.renew_seq + 1,
        next_holder = NULL, reserved_until = to_timestamp(0)
    WHERE l.name = 'acquire' AND NOT l.paused
      AND EXISTS (SELECT FROM tenure.node_session s WHERE s.session_id = $1 AND s.state = 'live')
      AND (   l.holder = $1
           OR (l.holder IS NULL AND (l.next_holder IS NULL OR l.next_holder = $2
                                     OR l.reserved_until <= clock_timestamp()
                                     OR l.renew_seq = $4 AND $5))
           OR (l.holder IS NOT NULL AND l.renew_seq = $4
               AND (l.expires_at <= clock_timestamp() OR $5)))
    RETURNING l.epoch, l.removals),
noted AS (
    INSERT INTO tenure.lock_change (epoch, change, node, member)
    SELECT t.epoch, 'taken', s.node, $2 FROM taken t JOIN tenure.node_session s ON s.session_id = $1
    ON CONFLICT DO NOTHING),
forgotten AS (
    DELETE FROM tenure.lock_change c
    WHERE c.ctid = ANY (ARRAY(
        SELECT o.ctid FROM tenure.lock_change o
        WHERE EXISTS (SELECT FROM taken)
          AND o.epoch < (SELECT k.epoch FROM tenure.lock_change k WHERE k.change = 'taken' ORDER BY k.epoch DESC OFFSET 498 LIMIT 1)
        FOR UPDATE SKIP LOCKED)))
SELECT true AS mine, epoch, $2::text AS holder_member, NULL::text AS next_holder, 0::bigint AS renew_seq,
       $3::bigint AS remaining_ms, false AS paused, removals,
       tenure.incarnation() AS incarnation
FROM taken
UNION ALL
SELECT false, l.epoch, l.holder_member, l.next_holder, l.renew_seq,
       greatest(0, extract(epoch FROM (CASE WHEN l.holder IS NULL THEN l.reserved_until ELSE l.expires_at END)
                                      - clock_timestamp()) * 1000)::bigint,
       l.paused, l.removals, 0
FROM tenure.acquire_lock l
WHERE l.name = 'acquire' AND NOT EXISTS (SELECT FROM taken);
