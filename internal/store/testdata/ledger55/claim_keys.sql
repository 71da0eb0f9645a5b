-- The jobs in flight that have an exclusive key. They are looked up one by one, whatever the plan,
-- and not if no job has a key.
SELECT job.id, c.turn, job.tenant_id, job.exclusive_key
FROM tenure.claim c
CROSS JOIN unnest(c.job_ids) AS run (id)
CROSS JOIN LATERAL (
    SELECT j.id, j.tenant_id, j.exclusive_key FROM tenure.job j
    WHERE j.id = run.id AND j.turn = c.turn OFFSET 0) job
WHERE job.exclusive_key IS NOT NULL
  AND EXISTS (SELECT FROM tenure.job WHERE exclusive_key IS NOT NULL);
