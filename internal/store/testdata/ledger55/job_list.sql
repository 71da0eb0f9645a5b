-- Jobs that have not finished, in the order of lists: the newest first. $1 state or null, $2 tenant or null, $3 kind or
-- null, $4 queue or null, $5 ids or null, $6 how many, $7 correlation id or null, $8 and $9 the place in the order
-- that the list goes on behind, or null. Of each table jobs are read in the order of their ids, as nothing else
-- is indexed. So a job is "listed_at" the time at which it was made, or that of an older one with a higher
-- id: that falls along the index, and with the id it is a place which stays what it is, within the years that a
-- cursor can say, whatever somebody has set. A waiting job's "handled" says
-- whether some live node has a handler for its kind. A claimed job's node has not taken it over
-- yet. "began" is when a job's run did: of a running one that is known if it has reported. external: it
-- is for workers outside the cluster, of which "node" is the one that has locked it until "at". A table whose
-- jobs are in none of the states that are asked for is not read: the planner sees that by "states".
-- Of its errors the last one is shown of those of its last attempt, or of a loss since, whatever the clock did; a dead
-- letter that was retried may have had as many attempts before.
-- Dead letters have indexes by tenant, kind and queue. Waiting jobs have none for lists, as each would cost every job:
-- the lanes lead to those of a tenant or a queue that has ten thousand at most ("few"), looked up by skipping from
-- queue to queue. Of more, as of a kind, they are read by their ids until the page is full if the newest jobs fill one
-- ("dense"), which by CASE the planner does not take for few; else as the planner likes.
WITH RECURSIVE queue AS (
    SELECT coalesce($4::text, (SELECT queue FROM tenure.job ORDER BY queue LIMIT 1)) AS name
    UNION ALL
    SELECT (SELECT j.queue FROM tenure.job j WHERE j.queue > queue.name ORDER BY j.queue LIMIT 1)
    FROM queue WHERE $4::text IS NULL AND queue.name IS NOT NULL),
few AS MATERIALIZED (
    SELECT CASE
        WHEN $2::text IS NULL AND $4::text IS NULL OR $5::bigint[] IS NOT NULL OR $7::text IS NOT NULL THEN NULL
        WHEN (SELECT count(*) FROM (SELECT FROM queue LIMIT 1000) q) = 1000 THEN NULL
        ELSE (SELECT CASE WHEN count(*) <= 10000 THEN coalesce(array_agg(found.id), '{}') END
              FROM (SELECT j.id FROM queue CROSS JOIN LATERAL (
                        SELECT j.id FROM tenure.job j WHERE j.queue = queue.name AND ($2::text IS NULL OR j.tenant_id = $2)
                        ORDER BY j.queue, j.tenant_id, j.priority, j.position LIMIT 10001) j
                    LIMIT 10001) found) END AS ids),
dense AS MATERIALIZED (
    SELECT $5::bigint[] IS NOT NULL OR $7::text IS NOT NULL OR (SELECT count(*) FROM (
        SELECT FROM (SELECT tenant_id, kind, queue FROM tenure.job ORDER BY id DESC LIMIT 200000) newest
        WHERE ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR queue = $4)
        LIMIT $6) page) = $6 AS yes),
running AS (
    SELECT r.id, c.turn, c.session_id, c.started_at FROM tenure.claim c, unnest(c.job_ids) AS r (id)),
handled AS (
    SELECT DISTINCT unnest(kinds) AS kind FROM tenure.node_session WHERE state = 'live' AND expires_at > clock_timestamp())
(SELECT j.id, CASE WHEN r.id IS NULL THEN 'waiting' WHEN r.started_at IS NULL THEN 'claimed' ELSE 'running' END AS state, j.tenant_id, j.queue, j.kind,
       j.priority, j.attempt, j.max_attempts, j.losses, j.created_at, r.started_at AS at,
       s.node, NULL::text AS error, tenure.legible(j.payload, true) AS payload, tenure.legible(j.meta, true) AS meta, j.unique_key, j.correlation_id,
       j.kind IN (SELECT kind FROM handled) AS handled,
       (SELECT p.started_at FROM tenure.job_report p WHERE p.job_id = r.id AND p.turn = r.turn) AS began, NULL::timestamptz AS resume_at, j.exclusive_key, j.timeout_ms, false AS external, j.listed_at
FROM (SELECT *, greatest(least(min(created_at) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at
      FROM ((SELECT * FROM tenure.job
             WHERE (SELECT ids FROM few) IS NULL AND (SELECT yes FROM dense)
               AND CASE WHEN ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR queue = $4) THEN true END
               AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)
             ORDER BY id DESC)
            UNION ALL
            (SELECT * FROM tenure.job
             WHERE (SELECT ids FROM few) IS NULL AND NOT (SELECT yes FROM dense)
               AND ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR queue = $4)
               AND $5::bigint[] IS NULL AND $7::text IS NULL
             ORDER BY id DESC)
            UNION ALL
            (SELECT * FROM tenure.job
             WHERE id = ANY ((SELECT ids FROM few)::bigint[])
               AND ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR queue = $4)
             ORDER BY id DESC)) job) j
LEFT JOIN running r ON r.id = j.id AND r.turn = j.turn
LEFT JOIN tenure.node_session s ON s.session_id = r.session_id
WHERE ($1::text IS NULL OR ($1 = 'waiting' AND r.id IS NULL) OR ($1 = 'claimed' AND r.id IS NOT NULL AND r.started_at IS NULL)
       OR ($1 = 'running' AND r.started_at IS NOT NULL))
  AND ($8::timestamptz IS NULL OR (j.listed_at, j.id) < ($8, $9::bigint))
ORDER BY j.id DESC LIMIT $6)
UNION ALL
(SELECT t.id, CASE WHEN t.due_at = tenure.never() THEN 'awaiting' WHEN t.attempt = 0 THEN 'scheduled' ELSE 'retrying' END, t.tenant_id, t.queue, t.kind,
       t.priority, t.attempt, t.max_attempts, t.losses, t.created_at, nullif(t.due_at, tenure.never()),
       NULL, (SELECT e.error FROM tenure.job_error e WHERE e.job_id = t.id ORDER BY t.attempt > 0 AND e.attempt BETWEEN t.attempt AND t.attempt + 1 DESC, e.at DESC LIMIT 1),
       tenure.legible(t.payload, true), tenure.legible(t.meta, true), t.unique_key, t.correlation_id, t.kind IN (SELECT kind FROM handled), NULL, NULL, t.exclusive_key, t.timeout_ms, false, t.listed_at
FROM (SELECT *, greatest(least(min(created_at) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at FROM tenure.timer_job
      WHERE ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3)
        AND ($4::text IS NULL OR queue = $4) AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) t
WHERE ($1::text IS NULL OR $1 IN ('awaiting', 'scheduled', 'retrying')) -- states
  AND ($1 IS NULL OR $1 = CASE WHEN t.due_at = tenure.never() THEN 'awaiting' WHEN t.attempt = 0 THEN 'scheduled' ELSE 'retrying' END)
  AND ($8::timestamptz IS NULL OR (t.listed_at, t.id) < ($8, $9::bigint))
ORDER BY t.id DESC LIMIT $6)
UNION ALL
(SELECT x.id, x.state, x.tenant_id, x.queue, x.kind,
       x.priority, x.attempt, x.max_attempts, x.losses, x.created_at, CASE x.state WHEN 'locked' THEN x.lock_expires_at ELSE x.due_at END,
       CASE x.state WHEN 'locked' THEN x.locked_by END, CASE WHEN x.attempt > 0 THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = x.id ORDER BY e.attempt BETWEEN x.attempt AND x.attempt + 1 DESC, e.at DESC LIMIT 1) END,
       tenure.legible(x.payload, true), tenure.legible(x.meta, true), x.unique_key, x.correlation_id, true, CASE x.state WHEN 'locked' THEN x.acquired_at END, NULL, x.exclusive_key, x.timeout_ms, true, x.listed_at
FROM (SELECT *, greatest(least(min(created_at) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at, CASE WHEN lock_expires_at > clock_timestamp() THEN 'locked' WHEN due_at IS NULL OR due_at <= clock_timestamp() THEN 'waiting'
                     WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END AS state
      FROM tenure.external_job
      WHERE ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3)
        AND ($4::text IS NULL OR queue = $4) AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) x
WHERE ($1::text IS NULL OR $1 IN ('locked', 'waiting', 'scheduled', 'retrying')) -- states
  AND ($1 IS NULL OR $1 = x.state)
  AND ($8::timestamptz IS NULL OR (x.listed_at, x.id) < ($8, $9::bigint))
ORDER BY x.id DESC LIMIT $6)
UNION ALL
(SELECT d.id, 'suspended', d.tenant_id, d.queue, d.kind,
       d.priority, d.attempt, d.max_attempts, d.losses, d.created_at, d.suspended_at,
       NULL, NULL, tenure.legible(d.payload, true), tenure.legible(d.meta, true), d.unique_key, d.correlation_id, true, NULL, d.resume_at, d.exclusive_key, d.timeout_ms, d.origin = 'external_job', d.listed_at
FROM (SELECT *, greatest(least(min(created_at) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at FROM tenure.suspended_job
      WHERE ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3)
        AND ($4::text IS NULL OR queue = $4) AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) d
WHERE ($1::text IS NULL OR $1 = 'suspended')
  AND ($8::timestamptz IS NULL OR (d.listed_at, d.id) < ($8, $9::bigint))
ORDER BY d.id DESC LIMIT $6)
UNION ALL
(SELECT d.id, 'dead', d.tenant_id, d.queue, d.kind,
       d.priority, d.attempt, d.max_attempts, d.losses, d.created_at, d.died_at,
       NULL, d.error, tenure.legible(d.payload, true), tenure.legible(d.meta, true), d.unique_key, d.correlation_id, true, NULL, NULL, d.exclusive_key, d.timeout_ms, d.origin = 'external_job', d.listed_at
FROM (SELECT *, greatest(least(min(created_at) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at FROM tenure.dead_letter_job
      WHERE ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR kind = $3)
        AND ($4::text IS NULL OR queue = $4) AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) d
WHERE ($1::text IS NULL OR $1 = 'dead')
  AND ($8::timestamptz IS NULL OR (d.listed_at, d.id) < ($8, $9::bigint))
ORDER BY d.id DESC LIMIT $6)
ORDER BY listed_at DESC, id DESC
LIMIT $6;
