-- The jobs that nodes have in hand, but for those that have waited there for a worker for long.
SELECT run.id FROM tenure.claim c LEFT JOIN tenure.node_session s ON s.session_id = c.session_id CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
WHERE run.id <> ALL (coalesce(s.waiting, '{}'))
