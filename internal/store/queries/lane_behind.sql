-- The first job of each lane behind position $4 that nobody has claimed, as a cursor may
-- have gone by it. $1 queues, $2 tenants, $3 priorities; $5 the kinds that can be run,
-- $6 whether others are shown, too. Nothing is shown of tenants that rest.
WITH claimed AS MATERIALIZED (SELECT unnest(c.job_ids) AS id, c.turn FROM tenure.claim c)
SELECT lane.n::integer, j.position
FROM unnest($1::text[], $2::text[], $3::smallint[]) WITH ORDINALITY AS lane (queue, tenant_id, priority, n)
CROSS JOIN LATERAL (
    SELECT j.position FROM tenure.job j
    WHERE j.queue = lane.queue AND j.tenant_id = lane.tenant_id AND j.priority = lane.priority
      AND j.position > $4 AND (j.kind = ANY($5::text[]) OR $6::boolean)
      AND (j.id, j.turn) NOT IN (SELECT c.id, c.turn FROM claimed c)
    ORDER BY j.position
    LIMIT CASE WHEN EXISTS (SELECT FROM tenure.tenant t
                            WHERE t.tenant_id = lane.tenant_id AND (t.state <> 'active' OR t.frozen))
               THEN 0 ELSE 1 END) j;
