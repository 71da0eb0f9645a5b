-- The first job of each lane behind position $4, and up to $14, that nobody has claimed, as a cursor may
-- have gone by it. $1 queues, $2 tenants, $3 priorities; $5 the kinds that can be run, $6
-- whether others count, too; $7 and $8 jobs and turns that are known of. Jobs of tenants
-- that rest count: they are read once that is over. The bound on the claimed keeps Postgres
-- hashing them, whatever it believes of the table; beyond it some would be found for nothing.
-- $9 tenants and $10 their exclusive keys of which it is known that jobs wait: where those stand
-- is looked up when it is their turn. $11 kinds, of each lane as an array, and $12 and $13 positions, likewise:
-- jobs of these kinds that stand behind the first and no further than the second are read by themselves.
WITH known AS MATERIALIZED (
    SELECT unnest($7::bigint[]) AS id, unnest($8::integer[]) AS turn
    UNION ALL
    (SELECT unnest(c.job_ids), c.turn FROM tenure.claim c LIMIT 50000)),
waited AS MATERIALIZED (
    SELECT unnest($9::text[]) AS tenant_id, unnest($10::text[]) AS key)
SELECT lane.n::integer, j.position
FROM unnest($1::text[], $2::text[], $3::smallint[], $11::text[], $12::text[], $13::text[]) WITH ORDINALITY AS lane (queue, tenant_id, priority, kinds, afters, up_tos, n)
CROSS JOIN LATERAL (
    SELECT j.position FROM tenure.job j
    WHERE j.queue = lane.queue AND j.tenant_id = lane.tenant_id AND j.priority = lane.priority
      AND j.position > $4 AND j.position <= $14 AND (j.kind = ANY($5::text[]) OR $6::boolean)
      AND (j.id, j.turn) NOT IN (SELECT k.id, k.turn FROM known k)
      AND (j.exclusive_key IS NULL OR (j.tenant_id, j.exclusive_key) NOT IN (SELECT w.tenant_id, w.key FROM waited w))
      AND (lane.kinds IS NULL
           OR j.position <= coalesce((lane.afters::bigint[])[array_position(lane.kinds::text[], j.kind)], 9223372036854775807)
           OR j.position > (lane.up_tos::bigint[])[array_position(lane.kinds::text[], j.kind)])
    ORDER BY j.position
    LIMIT 1) j;
