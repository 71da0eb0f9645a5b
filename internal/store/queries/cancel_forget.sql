-- Requests whose job has ended, and $1 those just answered.
DELETE FROM tenure.cancel_request r
WHERE r.job_id = ANY ($1::bigint[]) OR NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = r.job_id);
