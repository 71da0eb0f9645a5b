-- How long until the next timer or schedule is due, or the next suspended job is to be resumed, in
-- ms by the database's clock; no row: none. A time may be so far, or 'infinity', that no number of ms
-- says how far: beyond a day it is a day, after which one looks again. Those of tenants that rest do not count, or they would be
-- looked at all the time; nor do schedules that wait for their last job to end.
SELECT greatest(0, ceil(extract(epoch FROM least(min(next.at), clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000))::bigint
FROM (
    (SELECT j.due_at AS at
     FROM tenure.timer_job j
     WHERE j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
     ORDER BY j.due_at LIMIT 1)
    UNION ALL
    (SELECT s.next_at
     FROM tenure.schedule s
     WHERE s.next_at IS NOT NULL AND NOT s.paused
       AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
       AND NOT (s.waits AND tenure.is_unfinished(s.last_job))
     ORDER BY s.next_at LIMIT 1)
    UNION ALL
    (SELECT j.resume_at
     FROM tenure.suspended_job j
     WHERE j.resume_at IS NOT NULL
       AND j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
     ORDER BY j.resume_at LIMIT 1)) AS next
HAVING count(*) > 0;
