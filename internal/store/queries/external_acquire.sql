-- Locks jobs of a topic for an external worker: $1 topic, $2 worker, $3 for how long, in ms, $4 how
-- many at most, $5 how many bytes of payload and meta at most, but for a first job. To be run behind external_choose in
-- the same transaction: the tenants that were chosen have equal shares, each in order of priority and
-- position, and those with a bound no more than what is left of it. A row that somebody has locked is left out.
-- Of an exclusive key only the next job is taken, as of those that nodes run (key_heads), and none while one is locked; who may
-- not have seen that yet is refused by the unique index. Others are passed over, and of a tenant the first 10,000 jobs are looked
-- at, so that a long line behind one key costs no more than that.
-- What a job comes to is first taken for what is stored of it, so that little is printed in vain.
WITH chosen AS MATERIALIZED (
    SELECT one.tenant_id, coalesce(tenure.external_room(one.tenant_id, $1), $4) AS room
    FROM unnest(current_setting('tenure.chosen', true)::text[]) AS one (tenant_id)),
waiting AS MATERIALIZED (
    SELECT j.id, j.bytes, row_number() OVER (PARTITION BY chosen.tenant_id ORDER BY j.priority DESC, j.position) AS n
    FROM chosen
    CROSS JOIN LATERAL (
        SELECT w.id, w.priority, w.position, pg_column_size(w.payload) + coalesce(pg_column_size(w.meta), 0) AS bytes
        FROM (SELECT l.ctid, l.priority, l.position FROM tenure.external_job l
              WHERE l.kind = $1 AND l.tenant_id = chosen.tenant_id COLLATE "C" AND l.lock_expires_at IS NULL AND l.due_at IS NULL
                AND l.queue NOT IN (SELECT f.name FROM tenure.frozen f WHERE f.scope = 'queue')
              ORDER BY l.priority DESC, l.position
              LIMIT 10000) line
        JOIN tenure.external_job w ON w.ctid = line.ctid -- by whatever index, it would be read once for each row of the line
        WHERE w.lock_expires_at IS NULL AND w.due_at IS NULL
          AND (w.exclusive_key IS NULL
               OR NOT EXISTS (
                   SELECT FROM tenure.external_job o
                   WHERE o.tenant_id = w.tenant_id AND o.exclusive_key = w.exclusive_key AND o.lock_expires_at IS NOT NULL)
               AND (w.attempt > 0 OR NOT EXISTS (
                   SELECT FROM tenure.external_job o
                   WHERE o.tenant_id = w.tenant_id AND o.exclusive_key = w.exclusive_key AND o.due_at IS NOT NULL AND o.attempt > 0
                     AND (o.meta->'tenure:skip_retrying') IS DISTINCT FROM 'true'))
               AND w.id = (
                   SELECT o.id FROM tenure.external_job o
                   WHERE o.tenant_id = w.tenant_id AND o.exclusive_key = w.exclusive_key AND o.lock_expires_at IS NULL AND o.due_at IS NULL
                   ORDER BY (o.attempt = 0), o.position LIMIT 1))
        ORDER BY line.priority DESC, line.position
        LIMIT greatest(0, least(chosen.room, ceil($4::numeric / (SELECT count(*) FROM chosen))::bigint))
        FOR UPDATE OF w SKIP LOCKED) j),
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
