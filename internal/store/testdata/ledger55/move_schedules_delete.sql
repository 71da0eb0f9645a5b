-- Removes the schedules that are durable in the other pool. $1 tenant, $2 names.
DELETE FROM tenure.schedule WHERE tenant_id = $1 AND name = ANY ($2::text[]);
