-- Removes tenants' copies of schedules for every tenant that there are no more. $1 tenants.
DELETE FROM tenure.schedule s
WHERE s.origin = 'every' AND s.tenant_id = ANY ($1::text[])
  AND NOT EXISTS (SELECT FROM tenure.schedule d WHERE d.tenant_id = '' AND d.name = s.name)
  AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active');
