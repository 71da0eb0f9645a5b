-- What an operator has set for a tenant in the pool it lives in, with how much of its rates it has
-- used. $1 tenant.
SELECT t.max_running, t.weight, t.max_waiting,
       (SELECT coalesce(jsonb_agg(to_jsonb(l)), '[]') FROM tenure.job_limit l WHERE l.tenant_id = t.tenant_id)::text AS limits,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('scope', b.scope, 'name', b.name, 'full_in', extract(epoch FROM b.full_at - clock_timestamp()))), '[]')
        FROM tenure.rate_bucket b WHERE b.tenant_id = t.tenant_id AND b.full_at > clock_timestamp())::text AS buckets
FROM tenure.tenant t WHERE t.tenant_id = $1;
