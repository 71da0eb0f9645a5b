-- The dead letters that died first, as far as that is longer than $1 ms ago, at most $2; none of a tenant that is between two
-- pools, see dead_delete.
SELECT d.id, d.turn
FROM tenure.dead_letter_job d
WHERE d.died_at < clock_timestamp() - $1::bigint * interval '1 ms'
  AND d.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
ORDER BY d.died_at LIMIT $2;
