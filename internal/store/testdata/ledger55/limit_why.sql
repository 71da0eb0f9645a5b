-- The limits that apply to a waiting job, in the order in which they are asked: of each scope the
-- tenant's own number and rate, or else those of each tenant, and of an exclusive key before that those of
-- each key; with how many jobs are in flight under it, and in how many µs its bucket is full again. $1 the job.
WITH job AS (
    SELECT tenant_id, queue, kind, exclusive_key FROM tenure.job WHERE id = $1
    UNION ALL
    SELECT tenant_id, queue, kind, exclusive_key FROM tenure.timer_job WHERE id = $1),
asked AS (
    SELECT job.tenant_id, s.scope, s.name, s.n
    FROM job, LATERAL (VALUES ('tenant', '', 1), ('queue', job.queue, 2), ('kind', job.kind, 3), ('key', job.exclusive_key, 4)) AS s (scope, name, n)
    WHERE s.name IS NOT NULL),
rule AS (
    SELECT a.*, coalesce(CASE WHEN a.scope = 'tenant' AND t.max_running IS NOT NULL THEN greatest(t.max_running, 1) END, own.max_running, every.max_running) AS most,
           coalesce(own.rate, of_keys.rate, every.rate, of_every_key.rate) AS rate, -- all three are null, or none is
           coalesce(own.per_ms, of_keys.per_ms, every.per_ms, of_every_key.per_ms) AS per_ms,
           coalesce(own.burst, of_keys.burst, every.burst, of_every_key.burst) AS burst
    FROM asked a
    LEFT JOIN tenure.tenant t ON t.tenant_id = a.tenant_id
    LEFT JOIN tenure.job_limit own ON (own.tenant_id, own.scope, own.name) = (a.tenant_id, a.scope, a.name)
    LEFT JOIN tenure.job_limit of_keys ON a.scope = 'key' AND (of_keys.tenant_id, of_keys.scope, of_keys.name) = (a.tenant_id, 'key', '')
    LEFT JOIN tenure.job_limit every ON every.tenant_id = '' AND (every.scope, every.name) = (a.scope, a.name)
    LEFT JOIN tenure.job_limit of_every_key ON a.scope = 'key' AND (of_every_key.tenant_id, of_every_key.scope, of_every_key.name) = ('', 'key', ''))
SELECT r.tenant_id, r.scope, r.name, coalesce(r.most, 0), coalesce(r.rate, 0), coalesce(r.per_ms, 0), coalesce(r.burst, 0),
       (SELECT count(*) FROM tenure.claim c CROSS JOIN unnest(c.job_ids) AS run (id)
        CROSS JOIN LATERAL (SELECT o.tenant_id, o.queue, o.kind FROM tenure.job o WHERE o.id = run.id AND o.turn = c.turn OFFSET 0) o
        WHERE o.tenant_id = r.tenant_id AND r.name = CASE r.scope WHEN 'kind' THEN o.kind WHEN 'queue' THEN o.queue ELSE '' END)::integer AS flying,
       coalesce((SELECT ceil(extract(epoch FROM b.full_at - clock_timestamp()) * 1000000) FROM tenure.rate_bucket b
                 WHERE (b.tenant_id, b.scope, b.name) = (r.tenant_id, r.scope, r.name)), 0)::bigint AS full_in
FROM rule r
WHERE r.most IS NOT NULL OR r.rate IS NOT NULL
ORDER BY r.n;
