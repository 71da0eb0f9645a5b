-- Forgets buckets that have been full for a while, as if they had not been used. It waits for no row:
-- a claim may be writing several of them.
DELETE FROM tenure.rate_bucket b
USING (SELECT tenant_id, scope, name FROM tenure.rate_bucket
       WHERE full_at < clock_timestamp() - interval '1 minute'
       FOR UPDATE SKIP LOCKED) AS old
WHERE (b.tenant_id, b.scope, b.name) = (old.tenant_id, old.scope, old.name);
