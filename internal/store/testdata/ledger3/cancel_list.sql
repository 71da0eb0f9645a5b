-- Jobs that somebody wants ended.
SELECT job_id FROM tenure.cancel_request;
