-- When schedules are due that are not due yet, or never again, for as far as that may be because the clock ran ahead
-- when it was worked out, and what time it is.
SELECT s.tenant_id, s.name, s.spec, s.time_zone, s.end_at, s.since, s.jitter_ms, s.next_at, s.last_at, s.xmin::text AS version, clock_timestamp() AS now
FROM tenure.schedule s
WHERE s.tenant_id <> '' AND NOT s.paused AND (s.next_at IS NULL OR s.next_at > clock_timestamp());
