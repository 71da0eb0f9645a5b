-- The jobs that claims list. started_at: null while the node has not accepted the claim, or the job waits there for a worker.
SELECT r.id, c.turn, c.session_id, CASE WHEN r.id <> ALL (coalesce(s.waiting, '{}')) THEN c.started_at END AS started_at
FROM tenure.claim c LEFT JOIN tenure.node_session s ON s.session_id = c.session_id CROSS JOIN LATERAL unnest(c.job_ids) AS r (id)
