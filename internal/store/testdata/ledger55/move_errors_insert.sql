-- Adds failed runs of jobs that have just arrived. $1 the runs as JSON, $2 ids.
INSERT INTO tenure.job_error (job_id, attempt, at, node, error, stack, began)
SELECT r.job_id, r.attempt, r.at, r.node, r.error, r.stack, r.began
FROM unnest($1::text[]) WITH ORDINALITY AS l (text, n)
CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.job_error, l.text::jsonb) AS r
WHERE r.job_id = ANY ($2::bigint[])
ORDER BY l.n;
