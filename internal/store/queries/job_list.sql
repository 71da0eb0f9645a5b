-- Jobs that have not finished, in the order of lists: the newest first. $1 state or null, $2 tenant or null, $3 kind or
-- null, $4 queue or null, $5 ids or null, $6 how many, $7 correlation id or null, $8 and $9 the place in the order
-- that the list goes on behind, or null, $10 what a dead letter's error contains, in small letters, or null, $11 the node that a job
-- is with, or null: with a state in which it has one, $12 and $13 since and until when they were made, or null. Of each table jobs are read in the order of their ids, as nothing else
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
        SELECT FROM (SELECT tenant_id, kind, queue, created_at FROM tenure.job ORDER BY id DESC LIMIT 200000) newest
        WHERE {{chosen}}
        LIMIT $6) page) = $6 AS yes),
running AS (
    {{flying}}),
handled AS (
    SELECT DISTINCT unnest(kinds) AS kind FROM tenure.node_session WHERE state = 'live' AND expires_at > clock_timestamp())
SELECT {{listed | payload = tenure.legible(payload, true) | meta = tenure.legible(meta, true)}} FROM (
(SELECT {{j.listed
    | state = CASE WHEN r.id IS NULL THEN 'waiting' WHEN r.started_at IS NULL THEN 'claimed' ELSE 'running' END
    | at = r.started_at | node = s.node | error = NULL::text | handled = j.kind IN (SELECT kind FROM handled)
    | began = (SELECT p.started_at FROM tenure.job_report p WHERE p.job_id = r.id AND p.turn = r.turn)
    | resume_at = NULL::timestamptz | external = false}}
FROM (SELECT *, {{listed_at}} AS listed_at
      FROM ((SELECT * FROM tenure.job
             WHERE (SELECT ids FROM few) IS NULL AND (SELECT yes FROM dense)
               AND CASE WHEN {{chosen}} THEN true END
               AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)
             ORDER BY id DESC)
            UNION ALL
            (SELECT * FROM tenure.job
             WHERE (SELECT ids FROM few) IS NULL AND NOT (SELECT yes FROM dense)
               AND {{chosen}}
               AND $5::bigint[] IS NULL AND $7::text IS NULL
             ORDER BY id DESC)
            UNION ALL
            (SELECT * FROM tenure.job
             WHERE id = ANY ((SELECT ids FROM few)::bigint[])
               AND {{chosen}}
             ORDER BY id DESC)) job) j
LEFT JOIN running r ON r.id = j.id AND r.turn = j.turn
LEFT JOIN tenure.node_session s ON s.session_id = r.session_id
WHERE ($1::text IS NULL OR ($1 = 'waiting' AND r.id IS NULL) OR ($1 = 'claimed' AND r.id IS NOT NULL AND r.started_at IS NULL)
       OR ($1 = 'running' AND r.started_at IS NOT NULL))
  AND ($11::text IS NULL OR s.node = $11)
  AND ($8::timestamptz IS NULL OR (j.listed_at, j.id) < ($8, $9::bigint))
ORDER BY j.id DESC LIMIT $6)
UNION ALL
(SELECT {{t.listed
    | at = nullif(t.due_at, tenure.never()) | node = NULL
    | error = (SELECT e.error FROM tenure.job_error e WHERE e.job_id = t.id ORDER BY t.attempt > 0 AND e.attempt BETWEEN t.attempt AND t.attempt + 1 DESC, e.at DESC LIMIT 1)
    | handled = t.kind IN (SELECT kind FROM handled) | began = NULL | resume_at = NULL | external = false}}
FROM (SELECT *, {{listed_at}} AS listed_at, {{timer_state}} AS state FROM tenure.timer_job
      WHERE {{chosen}} AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) t
WHERE ($1::text IS NULL OR $1 IN ('awaiting', 'scheduled', 'retrying')) -- states
  AND ($1 IS NULL OR $1 = t.state)
  AND ($8::timestamptz IS NULL OR (t.listed_at, t.id) < ($8, $9::bigint))
ORDER BY t.id DESC LIMIT $6)
UNION ALL
(SELECT {{x.listed
    | at = CASE x.state WHEN 'locked' THEN x.lock_expires_at ELSE x.due_at END | node = CASE x.state WHEN 'locked' THEN x.locked_by END
    | error = CASE WHEN x.attempt > 0 THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = x.id ORDER BY e.attempt BETWEEN x.attempt AND x.attempt + 1 DESC, e.at DESC LIMIT 1) END
    | handled = true | began = CASE x.state WHEN 'locked' THEN x.acquired_at END | resume_at = NULL | external = true}}
FROM (SELECT *, {{listed_at}} AS listed_at, {{external_state}} AS state FROM tenure.external_job
      WHERE {{chosen}} AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) x
WHERE ($1::text IS NULL OR $1 IN ('locked', 'waiting', 'scheduled', 'retrying')) -- states
  AND ($1 IS NULL OR $1 = x.state) AND ($11 IS NULL OR x.locked_by = $11)
  AND ($8::timestamptz IS NULL OR (x.listed_at, x.id) < ($8, $9::bigint))
ORDER BY x.id DESC LIMIT $6)
UNION ALL
(SELECT {{d.listed
    | state = 'suspended' | at = d.suspended_at | node = NULL | error = NULL | handled = true | began = NULL
    | external = d.origin = 'external_job'}}
FROM (SELECT *, {{listed_at}} AS listed_at FROM tenure.suspended_job
      WHERE {{chosen}} AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) d
WHERE ($1::text IS NULL OR $1 = 'suspended')
  AND ($8::timestamptz IS NULL OR (d.listed_at, d.id) < ($8, $9::bigint))
ORDER BY d.id DESC LIMIT $6)
UNION ALL
(SELECT {{d.listed
    | state = 'dead' | at = d.died_at | node = NULL | handled = true | began = NULL | resume_at = NULL
    | external = d.origin = 'external_job'}}
FROM (SELECT *, {{listed_at}} AS listed_at FROM tenure.dead_letter_job
      WHERE {{chosen}} AND ($5::bigint[] IS NULL OR id = ANY ($5)) AND ($7::text IS NULL OR correlation_id = $7)) d
WHERE ($1::text IS NULL OR $1 = 'dead') AND ($10::text IS NULL OR strpos(lower(d.error), $10) > 0)
  AND ($8::timestamptz IS NULL OR (d.listed_at, d.id) < ($8, $9::bigint))
ORDER BY d.id DESC LIMIT $6)
) page ({{listed}})
ORDER BY listed_at DESC, id DESC
LIMIT $6;
