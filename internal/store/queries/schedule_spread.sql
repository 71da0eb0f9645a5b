-- Gives tenants their copy of a schedule for every tenant, or changes it, if that is still what it
-- was when it was read. When a copy is due next stays, unless its times have changed and it is not due just now.
-- $1 name, $2 since when its times are what they are, $3 tenants, $4 how much later each of them has
-- it, in ms, $5 when it is due next for each, or null.
INSERT INTO tenure.schedule AS s (tenant_id, name, origin, kind, queue, payload, meta, priority, max_attempts, spec, time_zone, end_at,
    missed, waits, jitter_ms, since, paused, next_at, kinds_queue, exclusive_key, external)
SELECT own.tenant_id, d.name, 'every', d.kind, d.queue, d.payload, d.meta, d.priority, d.max_attempts, d.spec, d.time_zone, d.end_at,
       d.missed, d.waits, own.jitter_ms, d.since, d.paused, own.next, d.kinds_queue, d.exclusive_key, d.external
FROM tenure.schedule d
CROSS JOIN unnest($3::text[], $4::bigint[], $5::timestamptz[]) AS own (tenant_id, jitter_ms, next)
WHERE d.tenant_id = '' AND d.name = $1 AND d.since = $2
  AND own.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active')
ON CONFLICT (tenant_id, name) DO UPDATE
SET kinds_queue = excluded.kinds_queue, external = excluded.external,
    exclusive_key = CASE WHEN (s.kind, s.payload) = (excluded.kind, excluded.payload) THEN coalesce(excluded.exclusive_key, s.exclusive_key) ELSE excluded.exclusive_key END,
    kind = excluded.kind, queue = excluded.queue, payload = excluded.payload, meta = excluded.meta, priority = excluded.priority,
    max_attempts = excluded.max_attempts, missed = excluded.missed, waits = excluded.waits,
    spec = excluded.spec, time_zone = excluded.time_zone, end_at = excluded.end_at, jitter_ms = excluded.jitter_ms, since = excluded.since,
    next_at = CASE WHEN s.since = excluded.since OR s.next_at <= clock_timestamp() THEN s.next_at ELSE excluded.next_at END
WHERE s.origin = 'every';
