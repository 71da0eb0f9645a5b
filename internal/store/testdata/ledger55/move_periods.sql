-- The unique keys of a tenant that has left which are taken for a period, as JSON, and a lock on them.
-- $1 tenant, $2 how many.
SELECT p.key, to_jsonb(p)::text AS line FROM tenure.unique_period p WHERE p.tenant_id = $1 ORDER BY p.key LIMIT $2 FOR UPDATE;
