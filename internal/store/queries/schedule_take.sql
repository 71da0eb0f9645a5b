-- What a schedule's jobs are to have before their kind gives something, and a lock on it. $1 tenant, $2 name.
SELECT s.kind, CASE WHEN s.kinds_queue THEN '' ELSE s.queue END AS queue, s.payload::text, s.external
FROM tenure.schedule s WHERE s.tenant_id = $1 AND s.name = $2 FOR UPDATE;
