-- Removes requests whose job has come to its end. One that is to run again, now or later,
-- keeps its own. A dead job has ended: anyone who retries it wants it to run.
DELETE FROM tenure.cancel_request r
WHERE NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = r.job_id);
