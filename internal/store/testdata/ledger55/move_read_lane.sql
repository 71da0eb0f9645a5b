-- Reads on in a lane of a tenant that has left, in order, and locks what it reads.
-- $1 tenant, $2 queue, $3 priority, $4 the position to read after, $5 how many.
SELECT j.position AS cursor, j.id, to_jsonb(j)::text AS line
FROM tenure.job j
WHERE j.queue = $2 AND j.tenant_id = $1 AND j.priority = $3 AND j.position > $4
ORDER BY j.position
LIMIT $5
FOR UPDATE;
