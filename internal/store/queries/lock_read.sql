-- Reads the acquire lock. remaining_ms: until it expires, or, when nobody holds it,
-- until its reservation ends.
SELECT l.holder_member, l.next_holder, l.epoch, l.renew_seq,
       greatest(0, extract(epoch FROM (CASE WHEN l.holder IS NULL THEN l.reserved_until ELSE l.expires_at END)
                                      - clock_timestamp()) * 1000)::bigint AS remaining_ms,
       l.paused, l.removals, l.holder, l.taken_at,
       greatest(0, extract(epoch FROM clock_timestamp() - l.renewed_at) * 1000)::bigint AS quiet_ms
FROM tenure.acquire_lock l
WHERE l.name = 'acquire';
