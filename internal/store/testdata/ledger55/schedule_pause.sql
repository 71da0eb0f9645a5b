-- Pauses a schedule of tenants or lets it go on. No row: none has it, or they are not here.
-- $1 name, $2 paused, $3 tenants, empty for the one for every tenant, $4 when it is due next for
-- each of them, or null; used where it goes on.
UPDATE tenure.schedule s
SET paused = $2, next_at = CASE WHEN $2 OR NOT s.paused THEN s.next_at ELSE a.next END
FROM unnest($3::text[], $4::timestamptz[]) AS a (tenant_id, next)
WHERE s.tenant_id = a.tenant_id AND s.name = $1
  AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active');
