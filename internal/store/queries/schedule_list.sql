-- The schedules of this pool by tenant and name, and what time it is; null chooses all.
-- $1 tenant, empty for those for every tenant, $2 name.
SELECT s.tenant_id, s.name, s.origin, s.kind, s.queue, s.payload, s.meta, s.priority, s.max_attempts, s.spec, s.time_zone, s.end_at,
       s.missed, s.waits, s.jitter_ms, s.since, s.paused, s.next_at, s.last_at, s.last_job, s.kinds_queue, s.exclusive_key, s.external
FROM tenure.schedule s
WHERE ($1::text IS NULL OR s.tenant_id = $1) AND ($2::text IS NULL OR s.name = $2)
ORDER BY s.tenant_id, s.name;
