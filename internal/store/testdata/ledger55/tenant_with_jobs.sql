-- Tenants with unfinished jobs or schedules, those of $2 or, with null, any; at most $1 of each table, by skipping from
-- one to the next along indexes. Where none begins with what is asked for, as of suspended jobs and of those of external
-- workers that were put off, at most $1 jobs are read. Schedules that tenants have because all have them, or by the
-- configuration, count for those of $2 only.
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.tenant_id FROM tenure.job j ORDER BY j.queue, j.tenant_id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id FROM tenure.job j
        WHERE (j.queue, j.tenant_id) > (lane.queue, lane.tenant_id)
        ORDER BY j.queue, j.tenant_id LIMIT 1) next),
timer AS (
    (SELECT tenant_id FROM tenure.timer_job ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT next.tenant_id
    FROM timer CROSS JOIN LATERAL (SELECT j.tenant_id FROM tenure.timer_job j WHERE j.tenant_id > timer.tenant_id ORDER BY j.tenant_id LIMIT 1) next),
dead AS (
    (SELECT tenant_id FROM tenure.dead_letter_job ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT next.tenant_id
    FROM dead CROSS JOIN LATERAL (SELECT j.tenant_id FROM tenure.dead_letter_job j WHERE j.tenant_id > dead.tenant_id ORDER BY j.tenant_id LIMIT 1) next),
topic AS (
    (SELECT kind, tenant_id FROM tenure.external_job WHERE lock_expires_at IS NULL AND due_at IS NULL ORDER BY kind, tenant_id LIMIT 1)
    UNION ALL
    SELECT next.kind, next.tenant_id
    FROM topic CROSS JOIN LATERAL (
        SELECT j.kind, j.tenant_id FROM tenure.external_job j
        WHERE j.lock_expires_at IS NULL AND j.due_at IS NULL AND (j.kind, j.tenant_id) > (topic.kind, topic.tenant_id)
        ORDER BY j.kind, j.tenant_id LIMIT 1) next),
locked AS (
    (SELECT tenant_id FROM tenure.external_job WHERE lock_expires_at IS NOT NULL ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT next.tenant_id
    FROM locked CROSS JOIN LATERAL (
        SELECT j.tenant_id FROM tenure.external_job j
        WHERE j.lock_expires_at IS NOT NULL AND j.tenant_id > locked.tenant_id ORDER BY j.tenant_id LIMIT 1) next),
scheduled AS (
    (SELECT tenant_id FROM tenure.schedule WHERE tenant_id > '' ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT next.tenant_id
    FROM scheduled CROSS JOIN LATERAL (SELECT s.tenant_id FROM tenure.schedule s WHERE s.tenant_id > scheduled.tenant_id ORDER BY s.tenant_id LIMIT 1) next)
SELECT tenant_id FROM (SELECT tenant_id FROM lane WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) waiting
UNION SELECT tenant_id FROM (SELECT tenant_id FROM timer WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) timers
UNION SELECT tenant_id FROM (SELECT tenant_id FROM topic WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) topics
UNION SELECT tenant_id FROM (SELECT tenant_id FROM locked WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) locked_by_workers
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.external_job WHERE due_at IS NOT NULL AND ($2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[]))) LIMIT $1) put_off
UNION SELECT tenant_id FROM (SELECT tenant_id FROM tenure.suspended_job WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) suspended
UNION SELECT tenant_id FROM (SELECT tenant_id FROM dead WHERE $2::text[] IS NULL OR tenant_id IN (SELECT unnest($2::text[])) LIMIT $1) dead_letters
UNION SELECT tenant_id FROM (
    SELECT tenant_id FROM scheduled
    WHERE tenant_id IN (SELECT unnest($2::text[]))
       OR $2::text[] IS NULL AND EXISTS (SELECT FROM tenure.schedule s WHERE s.tenant_id = scheduled.tenant_id AND s.origin = 'set')
    LIMIT $1) schedules
ORDER BY tenant_id;
