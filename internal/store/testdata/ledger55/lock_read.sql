-- Reads the acquire lock. remaining_ms: until it expires, or, when nobody holds it,
-- until its reservation ends. beat: of the holder's session. ttl_ms: how long it was last
-- taken or renewed for, whatever the clock has done since.
SELECT l.holder_member, l.next_holder, l.epoch, l.renew_seq,
       greatest(0, extract(epoch FROM (CASE WHEN l.holder IS NULL THEN l.reserved_until ELSE l.expires_at END)
                                      - clock_timestamp()) * 1000)::bigint AS remaining_ms,
       l.paused, l.removals, l.holder, l.taken_at,
       greatest(0, extract(epoch FROM clock_timestamp() - l.renewed_at) * 1000)::bigint AS quiet_ms,
       coalesce(s.hb_seq, 0) AS beat,
       greatest(0, extract(epoch FROM l.expires_at - l.renewed_at) * 1000)::bigint AS ttl_ms
FROM tenure.acquire_lock l
LEFT JOIN tenure.node_session s ON s.session_id = l.holder
WHERE l.name = 'acquire';
