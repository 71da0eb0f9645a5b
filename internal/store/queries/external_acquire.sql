-- Locks jobs of a topic for an external worker: $1 topic, $2 worker, $3 for how long, in ms, $4 how
-- many at most, $5 how many bytes of payload and meta at most, but for a first job. To be run behind external_choose in
-- the same transaction: the tenants that were chosen have equal shares, each in order of priority and
-- position, and those with a bound no more than what is left of it. A row that somebody has locked is left out.
-- Where there are exclusive keys, external_next says which may be.
-- What a job comes to is first taken for what is stored of it, so that little is printed in vain.
WITH chosen AS MATERIALIZED (
    SELECT one.tenant_id, greatest(0, least(tenure.external_room(one.tenant_id, $1), ceil($4::numeric / cardinality(one.of))::bigint)) AS share,
           EXISTS (SELECT FROM tenure.external_job j WHERE {{keyed}}) AND EXISTS (SELECT FROM tenure.external_job j WHERE j.tenant_id = one.tenant_id AND {{keyed}}) AS keyed
    FROM (SELECT unnest(t.of) AS tenant_id, t.of FROM (SELECT current_setting('tenure.chosen', true)::text[] AS of) t) one),
waiting AS MATERIALIZED (
    SELECT j.id, j.bytes, row_number() OVER (PARTITION BY chosen.tenant_id ORDER BY j.priority DESC, j.position) AS n
    FROM chosen
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT w.id, w.priority, w.position, pg_column_size(w.payload) + coalesce(pg_column_size(w.meta), 0) AS bytes
            FROM tenure.external_job w
            WHERE NOT chosen.keyed AND w.kind = $1 AND w.tenant_id = chosen.tenant_id COLLATE "C" AND w.lock_expires_at IS NULL AND w.due_at IS NULL
              AND w.queue NOT IN (SELECT f.name FROM tenure.frozen f WHERE f.scope = 'queue')
            ORDER BY w.priority DESC, w.position
            LIMIT chosen.share
            FOR UPDATE SKIP LOCKED) plain
        UNION ALL
        SELECT w.id, w.priority, w.position, pg_column_size(w.payload) + coalesce(pg_column_size(w.meta), 0)
        FROM tenure.external_next(chosen.tenant_id, $1, chosen.share, true) AS next (id)
        JOIN tenure.external_job w ON w.id = next.id
        WHERE chosen.keyed) j),
fitting AS (
    SELECT id, row_number() OVER so_far AS n, sum(bytes) OVER so_far AS bytes
    FROM waiting
    WINDOW so_far AS (ORDER BY n, id ROWS UNBOUNDED PRECEDING)),
printed AS MATERIALIZED (
    SELECT f.id, f.n, j.payload::text AS payload, j.meta::text AS meta
    FROM fitting f JOIN tenure.external_job j ON j.id = f.id
    WHERE f.n <= $4 AND (f.bytes <= $5::bigint OR f.n = 1)),
taken AS MATERIALIZED (
    SELECT p.id, p.n, sum(octet_length(p.payload) + coalesce(octet_length(p.meta), 0)) OVER (ORDER BY p.n ROWS UNBOUNDED PRECEDING) AS bytes, p.payload, p.meta
    FROM printed p),
locked AS (
    UPDATE tenure.external_job j
    SET turn = j.turn + 1, locked_by = $2, acquired_at = clock_timestamp(), lock_expires_at = clock_timestamp() + $3::bigint * interval '1 ms'
    FROM taken
    WHERE j.id = taken.id AND (taken.bytes <= $5::bigint OR taken.n = 1)
    RETURNING j.id, j.turn, j.tenant_id, j.queue, j.priority, j.position, j.attempt, j.max_attempts, j.losses, j.created_at, j.lock_expires_at,
              taken.payload, taken.meta, j.unique_key, j.correlation_id)
SELECT id, turn, tenant_id, queue, priority, attempt, max_attempts, losses, created_at, lock_expires_at, payload, meta, unique_key, correlation_id
FROM locked
ORDER BY priority DESC, position;
