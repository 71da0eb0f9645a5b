-- The schedules of a tenant that has left, as JSON, and a lock on them; and those for every tenant that they are copies of, which the
-- other pool may not have yet: it would take the copies away. common: it is such a one. $1 tenant.
WITH own AS MATERIALIZED (SELECT * FROM tenure.schedule s WHERE s.tenant_id = $1 FOR UPDATE)
SELECT own.name, to_jsonb(own)::text AS line, false AS common FROM own
UNION ALL
SELECT d.name, to_jsonb(d)::text, true FROM tenure.schedule d JOIN own ON own.name = d.name AND own.origin = 'every' WHERE d.tenant_id = '' AND d.origin <> 'config'
ORDER BY common, name;
