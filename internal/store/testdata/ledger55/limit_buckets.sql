-- The buckets that are not full, and in how many µs each will be.
SELECT tenant_id, scope, name, ceil(extract(epoch FROM full_at - now.at) * 1000000)::bigint AS full_in
FROM tenure.rate_bucket, clock_timestamp() AS now (at)
WHERE full_at > now.at;
