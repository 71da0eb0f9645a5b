-- Jobs that somebody wants ended and that do not stand here: some of them have ended, and others were
-- moved before the request was committed.
SELECT r.job_id FROM tenure.cancel_request r
WHERE NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.id = r.job_id)
  AND NOT EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = r.job_id);
