-- The schedules of a tenant that has left, as JSON, and a lock on them. $1 tenant.
SELECT s.name, to_jsonb(s)::text AS line FROM tenure.schedule s WHERE s.tenant_id = $1 ORDER BY s.name FOR UPDATE;
