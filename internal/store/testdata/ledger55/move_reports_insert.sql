-- Adds what runs said of themselves of jobs that have just arrived. $1 the reports as JSON, $2 ids.
INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, written_at, done, total, note, output, lines, left_out)
SELECT r.job_id, r.turn, r.attempt, r.node, r.started_at, r.written_at, r.done, r.total, r.note, r.output, r.lines, r.left_out
FROM unnest($1::text[]) AS l (text)
CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.job_report, l.text::jsonb) AS r
WHERE r.job_id = ANY ($2::bigint[])
ON CONFLICT DO NOTHING;
