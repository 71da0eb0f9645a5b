-- The next $1 lanes that have a row, behind the lane $3, $4, $5, by skipping from lane to lane along the index: costs
-- a descent per lane, not a look at every job. Of a tenant that has more of them $2 are listed, others each
-- time, and none of those that rest. n counts the lanes; the first, and the last one of $1, are returned in any case.
-- "lowest" is the first position in any of them. What is dead up to the bottom, which is noted with the lock, is passed
-- over in the index, unless $6 says that all is to be looked at. One row is returned in any case, for the bottom.
WITH RECURSIVE bottom AS MATERIALIZED (
    SELECT coalesce((SELECT l.bottom FROM tenure.acquire_lock l, tenure.job_position p
                     WHERE l.name = 'acquire' AND l.bottom_incarnation = tenure.incarnation() AND l.bottom <= p.last_value AND NOT $6::boolean), 0) AS position),
lane AS (
    (SELECT queue, tenant_id, priority, position, 1::bigint AS n FROM tenure.job
     WHERE (queue, tenant_id, priority) > ($3::text, $4::text, $5::smallint) AND position > (SELECT b.position FROM bottom b)
     ORDER BY queue, tenant_id, priority, position LIMIT 1)
    UNION ALL
    SELECT next.queue, next.tenant_id, next.priority, next.position, lane.n + 1
    FROM lane CROSS JOIN LATERAL (
        SELECT j.queue, j.tenant_id, j.priority, j.position FROM tenure.job j
        WHERE (j.queue, j.tenant_id, j.priority) > (lane.queue, lane.tenant_id, lane.priority) AND j.position > (SELECT b.position FROM bottom b)
        ORDER BY j.queue, j.tenant_id, j.priority, j.position
        LIMIT 1) AS next
    WHERE lane.n < $1),
ranked AS (
    SELECT lane.*, min(position) OVER () AS lowest, row_number() OVER (PARTITION BY tenant_id ORDER BY random()) <= $2
        AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen) AS listed
    FROM lane)
SELECT coalesce(r.queue, '') AS queue, coalesce(r.tenant_id, '') AS tenant_id, coalesce(r.priority, 0)::smallint AS priority, coalesce(r.n, 0) AS n,
       coalesce(r.listed, false) AS listed, coalesce(r.lowest, 9223372036854775807) AS lowest, b.position AS bottom
FROM bottom b LEFT JOIN ranked r ON r.listed OR r.n = 1 OR r.n = $1
ORDER BY r.n;
