-- Gives jobs of a tenant that nobody routes to another one of the pool, behind removal_lock, in each place as many as $3, and
-- says how many. They go to the end of its queues. What is in flight stays, as do those whose unique key the other one
-- has, and those whose arguments are encrypted, which only the first one's keys open. $1 from, $2 to.
WITH RECURSIVE queue AS (
    (SELECT j.queue FROM tenure.job j ORDER BY j.queue LIMIT 1)
    UNION ALL
    SELECT next.queue
    FROM queue CROSS JOIN LATERAL (SELECT j.queue FROM tenure.job j WHERE j.queue > queue.queue ORDER BY j.queue LIMIT 1) next),
flying AS MATERIALIZED (SELECT run.id FROM tenure.claim c, unnest(c.job_ids) AS run (id)),
found AS MATERIALIZED (
    SELECT id, unique_key, payload FROM queue CROSS JOIN LATERAL (
        SELECT j.id, j.unique_key, j.payload FROM tenure.job j WHERE j.queue = queue.queue AND j.tenant_id = $1 AND j.id NOT IN (SELECT f.id FROM flying f)) j
    UNION ALL SELECT id, unique_key, payload FROM tenure.timer_job WHERE tenant_id = $1
    UNION ALL SELECT id, unique_key, payload FROM tenure.external_job WHERE tenant_id = $1 AND lock_expires_at IS NULL
    UNION ALL SELECT id, unique_key, payload FROM tenure.suspended_job WHERE tenant_id = $1
    UNION ALL SELECT id, unique_key, payload FROM tenure.dead_letter_job WHERE tenant_id = $1),
chosen AS MATERIALIZED (
    SELECT id FROM found
    WHERE (payload ->> 0) IS DISTINCT FROM 'tenure:encrypted'
      AND NOT (unique_key IS NOT NULL AND EXISTS (SELECT FROM tenure.unique_job u WHERE u.tenant_id = $2 AND u.key = unique_key))
      AND NOT (unique_key IS NOT NULL AND EXISTS (SELECT FROM tenure.unique_period u WHERE u.tenant_id = $2 AND u.key = unique_key))
    ORDER BY id LIMIT $3),
waiting AS (
    UPDATE tenure.job j SET tenant_id = $2, turn = j.turn + 1, position = DEFAULT
    FROM chosen WHERE j.id = chosen.id AND j.tenant_id = $1),
timers AS (UPDATE tenure.timer_job j SET tenant_id = $2 FROM chosen WHERE j.id = chosen.id AND j.tenant_id = $1),
outside AS (UPDATE tenure.external_job j SET tenant_id = $2, turn = j.turn + 1 FROM chosen WHERE j.id = chosen.id AND j.tenant_id = $1),
suspended AS (UPDATE tenure.suspended_job j SET tenant_id = $2 FROM chosen WHERE j.id = chosen.id AND j.tenant_id = $1),
dead AS (UPDATE tenure.dead_letter_job j SET tenant_id = $2 FROM chosen WHERE j.id = chosen.id AND j.tenant_id = $1),
keys AS (UPDATE tenure.unique_job u SET tenant_id = $2 FROM chosen WHERE u.job_id = chosen.id AND u.tenant_id = $1),
periods AS (UPDATE tenure.unique_period u SET tenant_id = $2 FROM chosen WHERE u.job_id = chosen.id AND u.tenant_id = $1),
tags AS (UPDATE tenure.job_tag g SET tenant_id = $2 FROM chosen WHERE g.job_id = chosen.id AND g.tenant_id = $1),
links AS (UPDATE tenure.awaiting a SET tenant_id = $2 FROM chosen WHERE a.job_id = chosen.id AND a.tenant_id = $1),
linked AS (UPDATE tenure.awaited a SET tenant_id = $2 FROM chosen WHERE a.awaiting_id = chosen.id AND a.tenant_id = $1)
SELECT (SELECT count(*) FROM chosen) AS moved, (SELECT count(*) FROM found) - (SELECT count(*) FROM chosen) AS rest;
