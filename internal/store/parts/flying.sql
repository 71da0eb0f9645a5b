-- The jobs that claims list. started_at: null while the node has not accepted the claim.
SELECT r.id, c.turn, c.session_id, c.started_at
FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS r (id)
