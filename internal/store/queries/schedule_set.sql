-- Adds a schedule or changes what it is. What has become of it stays; when it is due next and since
-- when its times are what they are stays, too, unless its times have changed. No row: the tenant is
-- being moved or has left, or the schedule there is of another origin than those of $18.
-- What the configuration changes and is due stays due: nobody has made that run yet, as while the lock changes hands.
-- One for every tenant, whose tenant is empty, is due when tenants are to get it.
-- $1 tenant, $2 name, $3 origin, $4 kind, $5 queue, $6 payload, $7 meta, $8 priority,
-- $9 max_attempts, $10 spec, $11 time zone, $12 the end, $13 missed, $14 waits, $15 jitter in ms,
-- $16 since when, $17 when it is due next, or null, $19 whether its kind's queue counts, $20 the exclusive key, or null
-- if there is none, or it is not known, $21 whether workers outside the cluster run its jobs.
INSERT INTO tenure.schedule AS s (tenant_id, name, origin, kind, queue, payload, meta, priority, max_attempts, spec, time_zone, end_at,
    missed, waits, jitter_ms, since, next_at, kinds_queue, exclusive_key, external)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::jsonb, $7::jsonb, $8::smallint, $9::smallint, $10::text, $11::text, $12::timestamptz,
       $13::text, $14::boolean, $15::bigint, $16::timestamptz, $17::timestamptz, $19::boolean, $20::text, $21::boolean
WHERE NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $1 AND t.state <> 'active')
ON CONFLICT (tenant_id, name) DO UPDATE
SET origin = excluded.origin, kinds_queue = excluded.kinds_queue, external = excluded.external,
    exclusive_key = CASE WHEN (s.kind, s.payload) = (excluded.kind, excluded.payload) THEN coalesce(excluded.exclusive_key, s.exclusive_key) ELSE excluded.exclusive_key END,
    kind = excluded.kind, queue = excluded.queue, payload = excluded.payload, meta = excluded.meta,
    priority = excluded.priority, max_attempts = excluded.max_attempts, missed = excluded.missed, waits = excluded.waits,
    spec = excluded.spec, time_zone = excluded.time_zone, end_at = excluded.end_at, jitter_ms = excluded.jitter_ms,
    since = CASE WHEN (s.spec, s.time_zone, s.jitter_ms) = (excluded.spec, excluded.time_zone, excluded.jitter_ms)
                  AND s.end_at IS NOT DISTINCT FROM excluded.end_at THEN s.since ELSE excluded.since END,
    next_at = CASE WHEN excluded.tenant_id <> '' AND (s.origin, excluded.origin) = ('config', 'config') AND s.next_at <= clock_timestamp() THEN s.next_at
                   WHEN excluded.tenant_id <> '' AND (s.spec, s.time_zone, s.jitter_ms) = (excluded.spec, excluded.time_zone, excluded.jitter_ms)
                    AND s.end_at IS NOT DISTINCT FROM excluded.end_at THEN s.next_at ELSE excluded.next_at END
WHERE s.origin = ANY ($18::text[])
RETURNING s.next_at;
