-- Removes requests whose job has come to its end. One that is to run again, now or later,
-- keeps its own. A dead job has ended: anyone who retries it wants it to run. In a pool that tenants have left a
-- request is kept for ten minutes: its job may have left before it was committed, and the mover brings it along.
DELETE FROM tenure.cancel_request r
WHERE (r.requested_at < clock_timestamp() - interval '10 minutes'
       OR NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.state IN ('moving', 'moved')))
  AND NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = r.job_id);
