-- The tenants that lack a schedule for every tenant, or whose copy of it is another one by now; a
-- schedule of that name that is the tenant's own stands instead of it. $1 name, $2 tenants.
SELECT own.tenant_id
FROM tenure.schedule d
CROSS JOIN unnest($2::text[]) AS own (tenant_id)
LEFT JOIN tenure.schedule s ON s.tenant_id = own.tenant_id AND s.name = d.name
WHERE d.tenant_id = '' AND d.name = $1
  AND (s.name IS NULL
       OR s.origin = 'every' AND (s.since, s.kind, CASE WHEN NOT s.kinds_queue THEN s.queue END, s.payload, s.meta, s.priority, s.max_attempts, s.missed, s.waits, s.kinds_queue, s.external)
           IS DISTINCT FROM (d.since, d.kind, CASE WHEN NOT d.kinds_queue THEN d.queue END, d.payload, d.meta, d.priority, d.max_attempts, d.missed, d.waits, d.kinds_queue, d.external));
