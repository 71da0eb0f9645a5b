-- Of each exclusive key the job whose turn it is: one that is tried again, else the first in the
-- queue. retrying: it has to wait, as another one of the key waits for its next attempt.
-- One that others may pass meanwhile, as its meta says, keeps none. again: it is tried again. followed: the key has more waiting jobs. $1 tenants, $2 their keys, $3 the position from which on
-- each is looked up: before it stands what old transactions keep in the index of jobs that have ended,
-- and looking by that at each end is quadratic. IS FALSE keeps Postgres using the index for it. Keys
-- without a job are left out.
SELECT asked.n::integer, head.queue, head.priority, head.position, head.kind, head.attempt > 0 AS again,
       head.attempt = 0 AND EXISTS (
           SELECT FROM tenure.timer_job t
           WHERE t.tenant_id = asked.tenant_id AND t.exclusive_key = asked.key AND t.attempt > 0
             AND (t.meta->'tenure:skip_retrying') IS DISTINCT FROM 'true') AS retrying,
       head.followed
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS asked (tenant_id, key, position, n)
CROSS JOIN LATERAL (
    SELECT two.*, count(*) OVER () > 1 AS followed
    FROM (
        (SELECT j.queue, j.priority, j.position, j.kind, j.attempt FROM tenure.job j
         WHERE j.tenant_id = asked.tenant_id AND j.exclusive_key = asked.key AND (j.attempt = 0) IS FALSE
         ORDER BY j.position
         LIMIT 2)
        UNION ALL
        (SELECT j.queue, j.priority, j.position, j.kind, j.attempt FROM tenure.job j
         WHERE j.tenant_id = asked.tenant_id AND j.exclusive_key = asked.key AND (j.attempt = 0)
           AND j.position >= asked.position
         ORDER BY j.position
         LIMIT 2)
    ) two
    ORDER BY two.attempt > 0 DESC, two.position
    LIMIT 1) head;
