-- Jobs that somebody wants cancelled and that nobody has claimed, whatever their kind and their
-- tenant, by id. $1 the id to read after, $2 how many.
WITH claimed AS MATERIALIZED (
    SELECT run.id, c.turn FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id))
SELECT j.id, j.turn
FROM tenure.cancel_request r JOIN tenure.job j ON j.id = r.job_id
WHERE r.job_id > $1 AND (j.id, j.turn) NOT IN (SELECT id, turn FROM claimed)
ORDER BY r.job_id
LIMIT $2;
