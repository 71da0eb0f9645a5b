-- What the runs of some jobs said of themselves, as JSON. $1 ids.
SELECT to_jsonb(r)::text FROM tenure.job_report r WHERE r.job_id = ANY ($1::bigint[]) ORDER BY r.job_id, r.turn;
