-- The schedules that are due, those first that were due first, and what time it is. Those of
-- tenants that rest do not count, nor those that wait for their last job to end. damage: why what
-- its jobs are to have cannot be read.
-- $1 the most to list.
SELECT s.tenant_id, s.name, s.spec, s.time_zone, s.end_at, s.since, s.missed, s.waits, s.jitter_ms, s.next_at, clock_timestamp() AS now,
       s.kind, CASE WHEN s.kinds_queue THEN '' ELSE s.queue END AS queue, CASE WHEN d.damage = '' THEN s.payload::text END AS payload, s.xmin::text AS version,
       d.damage, s.external
FROM tenure.schedule s
CROSS JOIN LATERAL (SELECT coalesce(tenure.damage(s.payload), tenure.damage(s.meta), '') AS damage OFFSET 0) d
WHERE s.next_at <= (SELECT clock_timestamp()) AND NOT s.paused
  AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
  AND NOT (s.waits AND tenure.is_unfinished(s.last_job))
ORDER BY s.next_at
LIMIT $1;
