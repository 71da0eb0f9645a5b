-- Whether anything waits in a pool that was idle, in how many ms the next timer or schedule is due
-- or the next suspended job is to be resumed (null: there is none), and whether there are claims.
-- Tenants that rest do not count, nor do schedules that wait for their last job to end; but what is
-- to be cancelled does, ends that some job awaits, and operations in the background. And the bottom, up to which no job
-- stands: see lane_list.sql.
WITH RECURSIVE bottom AS MATERIALIZED (
    SELECT coalesce((SELECT l.bottom FROM tenure.acquire_lock l, tenure.job_position p
                     WHERE l.name = 'acquire' AND l.bottom_incarnation = tenure.incarnation() AND l.bottom <= p.last_value), 0) AS position),
lane AS (
    (SELECT queue, tenant_id FROM tenure.job WHERE position > (SELECT b.position FROM bottom b) ORDER BY queue, tenant_id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id FROM tenure.job j
        WHERE (j.queue, j.tenant_id) > (lane.queue, lane.tenant_id) AND j.position > (SELECT b.position FROM bottom b)
        ORDER BY j.queue, j.tenant_id
        LIMIT 1) AS next)
SELECT EXISTS (SELECT FROM lane WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen))
    OR EXISTS (SELECT FROM tenure.cancel_request r JOIN tenure.job j ON j.id = r.job_id
               WHERE j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving')))
    OR EXISTS (SELECT FROM tenure.awaited_end e
               WHERE e.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving')))
    OR EXISTS (SELECT FROM tenure.operation WHERE ended_at IS NULL) AS waiting,
       (SELECT (extract(epoch FROM least(next.at, clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000)::bigint -- a day at most: see timer_next.sql
        FROM (SELECT least(
            (SELECT due_at
             FROM tenure.timer_job
             WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
             ORDER BY due_at LIMIT 1),
            (SELECT s.next_at
             FROM tenure.schedule s
             WHERE s.next_at IS NOT NULL AND NOT s.paused
               AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
               AND NOT (s.waits AND tenure.is_unfinished(s.last_job))
             ORDER BY s.next_at LIMIT 1),
           (SELECT resume_at
            FROM tenure.suspended_job
            WHERE resume_at IS NOT NULL
              AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
            ORDER BY resume_at LIMIT 1)) AS at) next
        WHERE next.at IS NOT NULL) AS due_ms,
       EXISTS (SELECT FROM tenure.claim) AS claimed, (SELECT b.position FROM bottom b) AS bottom;
