-- Whether a schedule of the configuration differs from what the ledger has of it, which may be
-- nothing, or another origin's. $1 tenant, $2 name, $3 kind, $4 queue, $5 payload, $6 priority,
-- $7 max_attempts, $8 spec, $9 time zone, $10 the end, $11 missed, $12 waits, $13 jitter in ms,
-- $14 whether its kind's queue counts.
SELECT NOT EXISTS (
    SELECT FROM tenure.schedule s
    WHERE s.tenant_id = $1 AND s.name = $2 AND s.origin = 'config' AND s.kind = $3 AND (s.queue = $4 OR $14) AND s.kinds_queue = $14 AND s.payload = $5 AND s.priority = $6
      AND s.max_attempts IS NOT DISTINCT FROM $7 AND s.spec = $8 AND s.time_zone = $9 AND s.end_at IS NOT DISTINCT FROM $10
      AND s.missed = $11 AND s.waits = $12 AND s.jitter_ms = $13 AND s.external = $15);
