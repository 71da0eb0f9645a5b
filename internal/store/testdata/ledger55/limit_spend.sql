-- Notes what is left in the buckets after a claim, in its transaction, under the fence of the lock's
-- epoch. It says how things stand, and not what has changed: after a claim that came to nothing the
-- next one puts it right. $1 session, $2 epoch, $3 tenants, $4 scopes, $5 names, $6 in how many µs
-- each is full again.
INSERT INTO tenure.rate_bucket (tenant_id, scope, name, full_at)
SELECT b.tenant_id, b.scope, b.name, clock_timestamp() + b.full_in * interval '1 microsecond'
FROM (SELECT FROM tenure.acquire_lock
      WHERE name = 'acquire' AND holder = $1 AND epoch = $2
      FOR KEY SHARE) AS fence
CROSS JOIN unnest($3::text[], $4::text[], $5::text[], $6::bigint[]) AS b (tenant_id, scope, name, full_in)
ON CONFLICT (tenant_id, scope, name) DO UPDATE SET full_at = excluded.full_at;
