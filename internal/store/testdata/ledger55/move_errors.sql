-- The failed runs of some jobs, as JSON. $1 ids.
SELECT to_jsonb(e)::text FROM tenure.job_error e WHERE e.job_id = ANY ($1::bigint[]) ORDER BY e.at;
