-- Reads on in many lanes at once: $1 queues, $2 tenants, $3 priorities, $4 the
-- position to read after, $5 how many; $6 the kinds that can be run now. A job of
-- another kind is shown without its payload when $7 is true, else not at all. Nothing
-- is shown of tenants that rest; the limit is where Postgres looks that up once a lane.
-- A lane that is read for the sake of one kind shows the jobs of $11 up to the position $12 only.
-- A job with an exclusive key is shown without its payload, too, unless $10 says of its lane that
-- it is read for the job whose turn it is.
-- unwanted: somebody wants the job cancelled; it is not to be claimed. That is looked up job by job, as
-- there may be very many requests, and neither IN nor EXISTS keeps Postgres from reading them all; but not
-- at all while there is none, as a small table soon shows.
-- Payload and meta are printed once, and neither shown when they come to more than $8 bytes
-- or, with all before them that do not, to more than $9; what is stored as more is not even read.
SELECT page.n, page.position, page.id, page.turn, page.kind, page.attempt, page.max_attempts, page.losses, page.timeout_ms,
       page.created_at, CASE WHEN page.shown THEN page.payload END, CASE WHEN page.shown THEN page.meta END,
       page.unique_key, page.correlation_id,
       (SELECT pg_relation_size('tenure.cancel_request') > 1000000 OR EXISTS (SELECT FROM tenure.cancel_request))
           AND (SELECT r.job_id FROM tenure.cancel_request r WHERE r.job_id = page.id) IS NOT NULL AS unwanted,
       page.bytes, page.exclusive_key, page.ready_at
FROM (
    SELECT printed.*, size.bytes,
           size.bytes <= $8::bigint AND sum(CASE WHEN size.bytes <= $8::bigint THEN size.bytes::integer END) OVER (ROWS UNBOUNDED PRECEDING) <= $9::bigint AS shown
    FROM (
        SELECT lane.n::integer AS n, j.position, j.id, j.turn, j.kind, j.attempt, j.max_attempts, j.losses, j.timeout_ms,
               j.created_at, coalesce(j.ready_at, j.created_at) AS ready_at, j.unique_key, j.correlation_id, j.exclusive_key, stored.bytes AS stored,
               CASE WHEN stored.bytes <= $8::bigint THEN j.payload::text END AS payload,
               CASE WHEN stored.bytes <= $8::bigint THEN j.meta::text END AS meta
        FROM unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[], $5::integer[], $10::boolean[], $11::text[], $12::bigint[])
             WITH ORDINALITY AS lane (queue, tenant_id, priority, after, quota, head, kind, up_to, n)
        CROSS JOIN LATERAL (
            SELECT * FROM tenure.job j
            WHERE j.queue = lane.queue AND j.tenant_id = lane.tenant_id AND j.priority = lane.priority
              AND j.position > lane.after AND j.position <= lane.up_to AND (j.kind = ANY($6::text[]) OR $7::boolean)
              AND (lane.kind = '' OR j.kind = lane.kind)
            ORDER BY j.position
            LIMIT CASE WHEN EXISTS (SELECT FROM tenure.tenant t
                                    WHERE t.tenant_id = lane.tenant_id AND (t.state <> 'active' OR t.frozen))
                       THEN 0 ELSE lane.quota END) j
        CROSS JOIN LATERAL (
            SELECT CASE WHEN j.kind = ANY($6::text[]) AND (j.exclusive_key IS NULL OR lane.head) THEN pg_column_size(j.payload) + coalesce(pg_column_size(j.meta), 0) END AS bytes) stored
        OFFSET 0) printed
    CROSS JOIN LATERAL (
        SELECT coalesce(octet_length(printed.payload) + coalesce(octet_length(printed.meta), 0), printed.stored, 0)::bigint AS bytes) size) page;
