-- Puts suspended jobs back where they came from, as they were, in the order in which they were
-- made: waiting ones behind those that wait now, timers with the time that they were due at. Those
-- stay whose row somebody has locked, and those of a tenant that is between two pools, when the
-- other one may have them, too. $1 ids, or null: up to $2 of those whose time to be resumed has
-- come. A row for each: the lane in which it waits, or in how many ms its timer is due.
WITH gone AS (
    DELETE FROM tenure.suspended_job
    WHERE id = ANY (ARRAY(
        SELECT s.id FROM tenure.suspended_job s
        WHERE (s.id = ANY ($1::bigint[]) OR $1::bigint[] IS NULL AND s.resume_at <= (SELECT clock_timestamp()))
          AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
        ORDER BY s.created_at, s.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED))
    RETURNING *),
waiting AS (
    INSERT INTO tenure.job ({{job}})
    SELECT {{job | turn = turn + 1}} FROM gone WHERE due_at IS NULL AND origin <> 'external_job'
    ORDER BY created_at, id
    RETURNING queue, tenant_id, priority),
timers AS (
    INSERT INTO tenure.timer_job ({{job}}, due_at, repeat, end_at)
    SELECT {{job | turn = turn + 1}}, due_at, repeat, end_at
    FROM gone WHERE due_at IS NOT NULL AND origin <> 'external_job'
    RETURNING queue, tenant_id, priority, due_at),
outside AS (
    INSERT INTO tenure.external_job ({{job}}, due_at)
    SELECT {{job | turn = turn + 1}}, due_at FROM gone WHERE origin = 'external_job'
    ORDER BY created_at, id
    RETURNING queue, tenant_id, priority)
SELECT queue, tenant_id, priority, NULL::bigint AS due_in FROM (SELECT * FROM waiting UNION ALL SELECT * FROM outside) undelayed
UNION ALL
SELECT queue, tenant_id, priority, greatest(0, ceil(extract(epoch FROM least(due_at, clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000))::bigint FROM timers;
