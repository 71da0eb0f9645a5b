-- Has schedules be due sooner, but for those that have changed since they were read, or that somebody has locked. Of
-- each $1 tenant, $2 name, $3 the version that was read, $4 when it is due next.
WITH mine AS MATERIALIZED (
    SELECT s.tenant_id, s.name, a.next
    FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) AS a (tenant_id, name, version, next)
    JOIN tenure.schedule s ON s.tenant_id = a.tenant_id AND s.name = a.name AND s.xmin::text = a.version
    FOR UPDATE OF s SKIP LOCKED)
UPDATE tenure.schedule s SET next_at = mine.next FROM mine WHERE s.tenant_id = mine.tenant_id AND s.name = mine.name;
