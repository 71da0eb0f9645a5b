-- Reads on in many lanes at once: $1 queues, $2 tenants, $3 priorities, $4 the
-- position to read after, $5 how many; $6 the kinds that can be run now. A job of
-- another kind is shown without its payload when $7 is true, else not at all. Nothing
-- is shown of tenants that rest; the limit is where Postgres looks that up once a lane.
SELECT lane.n::integer, j.position, j.id, j.turn, j.kind, j.attempt, j.max_attempts, j.losses, j.timeout_ms,
       j.created_at, CASE WHEN j.kind = ANY($6::text[]) THEN j.payload END, j.meta, j.unique_key, j.correlation_id
FROM unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[], $5::integer[])
     WITH ORDINALITY AS lane (queue, tenant_id, priority, after, quota, n)
CROSS JOIN LATERAL (
    SELECT * FROM tenure.job j
    WHERE j.queue = lane.queue AND j.tenant_id = lane.tenant_id AND j.priority = lane.priority
      AND j.position > lane.after AND (j.kind = ANY($6::text[]) OR $7::boolean)
    ORDER BY j.position
    LIMIT CASE WHEN EXISTS (SELECT FROM tenure.tenant t
                            WHERE t.tenant_id = lane.tenant_id AND (t.state <> 'active' OR t.frozen))
               THEN 0 ELSE lane.quota END) j;
