-- The batches whose completion jobs are jobs of a batch, also those that have ended: to cancel them may
-- have been interrupted. $1 the batch.
SELECT a.job_id FROM tenure.awaited a JOIN tenure.awaiting w ON w.job_id = a.job_id
WHERE a.awaiting_id = $1 AND w.batch
ORDER BY a.job_id;
