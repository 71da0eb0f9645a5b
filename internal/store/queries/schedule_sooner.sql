-- Has schedules be due sooner, but for those that have changed since they were read. Of each $1 tenant, $2 name,
-- $3 the version that was read, $4 when it is due next.
UPDATE tenure.schedule s SET next_at = a.next
FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) AS a (tenant_id, name, version, next)
WHERE s.tenant_id = a.tenant_id AND s.name = a.name AND s.xmin::text = a.version;
