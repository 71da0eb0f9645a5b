-- Cancels the next $3 jobs of a batch that have not ended, by id, as tenure.cancel does. $1 the
-- batch, $2 the id to read after, $4 whether to keep cancelled jobs. A row for each.
SELECT m.job_id, tenure.cancel(m.job_id, $4::boolean) IS NOT NULL AS cancelled
FROM (SELECT a.job_id FROM tenure.awaited a
      WHERE a.awaiting_id = $1 AND a.job_id > $2 AND a.outcome IS NULL
      ORDER BY a.outcome, a.job_id LIMIT $3 OFFSET 0) m -- as the index has it
ORDER BY m.job_id;
