-- The finished jobs of a tenant that has left: for a cursor, as no index leads to them.
-- $1 tenant.
SELECT tableoid::bigint, ctid::text, id, to_jsonb(f)::text FROM tenure.completed_job f WHERE tenant_id = $1;
