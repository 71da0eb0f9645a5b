-- Adds the schedules of a tenant that arrives. Those that are there stay as they are.
-- $1 the rows as JSON. A payload of null is JSON's null.
INSERT INTO tenure.schedule (tenant_id, name, origin, kind, queue, payload, meta, priority, max_attempts, spec, time_zone, end_at,
    missed, waits, jitter_ms, since, paused, next_at, last_at, last_job, kinds_queue, exclusive_key, external)
SELECT r.tenant_id, r.name, r.origin, r.kind, r.queue, coalesce(r.payload, 'null'), r.meta, r.priority, r.max_attempts, r.spec, r.time_zone, r.end_at,
       r.missed, r.waits, r.jitter_ms, r.since, r.paused, r.next_at, r.last_at, r.last_job, coalesce(r.kinds_queue, false), r.exclusive_key, coalesce(r.external, false)
FROM unnest($1::text[]) AS l (text)
CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.schedule, l.text::jsonb) AS r
ON CONFLICT (tenant_id, name) DO NOTHING;
