-- Those of some jobs that somebody wants ended. $1 ids.
SELECT job_id FROM tenure.cancel_request WHERE job_id = ANY ($1::bigint[]);
