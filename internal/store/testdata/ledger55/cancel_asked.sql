-- When somebody asked for an unfinished job to be cancelled; no row: nobody did. $1 job.
SELECT requested_at FROM tenure.cancel_request WHERE job_id = $1;
