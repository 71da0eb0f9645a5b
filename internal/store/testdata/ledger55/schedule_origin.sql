-- The tenants and names of the schedules of an origin. $1 origin.
SELECT tenant_id, name FROM tenure.schedule WHERE origin = $1 ORDER BY tenant_id, name;
