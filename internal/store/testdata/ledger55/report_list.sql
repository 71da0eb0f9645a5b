-- What a job's runs said of themselves, in their order. $1 id.
SELECT turn, attempt, node, started_at, written_at, done, total, note, output, lines, left_out
FROM tenure.job_report WHERE job_id = $1 ORDER BY turn;
