-- What there is in the pool of limits of the whole cluster: how many jobs are in flight under each, and in
-- how many µs its bucket is full again. $1 scopes, $2 names of queues and kinds.
WITH flying AS MATERIALIZED (
    SELECT job.queue, job.kind, count(*) AS n
    FROM tenure.claim c
    CROSS JOIN unnest(c.job_ids) AS run (id)
    CROSS JOIN LATERAL (SELECT j.queue, j.kind FROM tenure.job j WHERE j.id = run.id AND j.turn = c.turn OFFSET 0) job
    GROUP BY job.queue, job.kind)
SELECT (SELECT coalesce(sum(f.n), 0) FROM flying f
        WHERE l.name = CASE l.scope WHEN 'cluster queue' THEN f.queue ELSE f.kind END)::integer AS flying,
       coalesce((SELECT ceil(extract(epoch FROM b.full_at - clock_timestamp()) * 1000000) FROM tenure.rate_bucket b
                 WHERE (b.tenant_id, b.scope, b.name) = ('', l.scope, l.name)), 0)::bigint AS full_in
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS l (scope, name, n)
ORDER BY l.n;
