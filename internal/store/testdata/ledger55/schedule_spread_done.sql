-- Notes that tenants have a schedule for every tenant, unless it was set again since it was read.
-- $1 name, $2 when it was due.
UPDATE tenure.schedule SET next_at = NULL WHERE tenant_id = '' AND name = $1 AND next_at = $2;
