-- Jobs in any state, the newest first. $1 state or null, $2 tenant or null, $3 kind or
-- null, $4 queue or null, $5 id or null, $6 how many. A waiting job's "handled" says
-- whether some live node has a handler for its kind.
WITH running AS (
    SELECT r.id, c.turn, c.session_id, c.started_at FROM tenure.claim c, unnest(c.job_ids) AS r (id)),
handled AS (
    SELECT DISTINCT unnest(kinds) AS kind FROM tenure.node_session WHERE state = 'live' AND expires_at > clock_timestamp())
(SELECT j.id, CASE WHEN r.id IS NULL THEN 'waiting' ELSE 'running' END AS state, j.tenant_id, j.queue, j.kind,
       j.priority, j.attempt, j.max_attempts, j.losses, j.created_at, r.started_at AS at,
       s.node, NULL::text AS error, j.payload, j.meta, j.unique_key, j.correlation_id,
       j.kind IN (SELECT kind FROM handled) AS handled
FROM tenure.job j
LEFT JOIN running r ON r.id = j.id AND r.turn = j.turn
LEFT JOIN tenure.node_session s ON s.session_id = r.session_id
WHERE ($1::text IS NULL OR ($1 = 'waiting' AND r.id IS NULL) OR ($1 = 'running' AND r.id IS NOT NULL))
  AND ($2::text IS NULL OR j.tenant_id = $2) AND ($3::text IS NULL OR j.kind = $3)
  AND ($4::text IS NULL OR j.queue = $4) AND ($5::bigint IS NULL OR j.id = $5)
ORDER BY j.id DESC LIMIT $6)
UNION ALL
(SELECT t.id, CASE WHEN t.attempt = 0 THEN 'scheduled' ELSE 'retrying' END, t.tenant_id, t.queue, t.kind,
       t.priority, t.attempt, t.max_attempts, t.losses, t.created_at, t.due_at,
       NULL, (SELECT e.error FROM tenure.job_error e WHERE e.job_id = t.id ORDER BY e.at DESC LIMIT 1),
       t.payload, t.meta, t.unique_key, t.correlation_id, t.kind IN (SELECT kind FROM handled)
FROM tenure.timer_job t
WHERE ($1::text IS NULL OR ($1 = 'scheduled' AND t.attempt = 0) OR ($1 = 'retrying' AND t.attempt > 0))
  AND ($2::text IS NULL OR t.tenant_id = $2) AND ($3::text IS NULL OR t.kind = $3)
  AND ($4::text IS NULL OR t.queue = $4) AND ($5::bigint IS NULL OR t.id = $5)
ORDER BY t.id DESC LIMIT $6)
UNION ALL
(SELECT d.id, 'suspended', d.tenant_id, d.queue, d.kind,
       d.priority, d.attempt, d.max_attempts, d.losses, d.created_at, d.suspended_at,
       NULL, NULL, d.payload, d.meta, d.unique_key, d.correlation_id, true
FROM tenure.suspended_job d
WHERE ($1::text IS NULL OR $1 = 'suspended')
  AND ($2::text IS NULL OR d.tenant_id = $2) AND ($3::text IS NULL OR d.kind = $3)
  AND ($4::text IS NULL OR d.queue = $4) AND ($5::bigint IS NULL OR d.id = $5)
ORDER BY d.id DESC LIMIT $6)
UNION ALL
(SELECT d.id, 'dead', d.tenant_id, d.queue, d.kind,
       d.priority, d.attempt, d.max_attempts, d.losses, d.created_at, d.died_at,
       NULL, d.error, d.payload, d.meta, d.unique_key, d.correlation_id, true
FROM tenure.dead_letter_job d
WHERE ($1::text IS NULL OR $1 = 'dead')
  AND ($2::text IS NULL OR d.tenant_id = $2) AND ($3::text IS NULL OR d.kind = $3)
  AND ($4::text IS NULL OR d.queue = $4) AND ($5::bigint IS NULL OR d.id = $5)
ORDER BY d.id DESC LIMIT $6)
UNION ALL
(SELECT f.id, f.outcome, f.tenant_id, f.queue, f.kind,
       f.priority, f.attempt, NULL, f.losses, f.created_at, f.finished_at,
       NULL, NULL, f.payload, f.meta, f.unique_key, f.correlation_id, true
FROM tenure.completed_job f
WHERE ($1::text IS NULL OR $1 = f.outcome)
  AND ($2::text IS NULL OR f.tenant_id = $2) AND ($3::text IS NULL OR f.kind = $3)
  AND ($4::text IS NULL OR f.queue = $4) AND ($5::bigint IS NULL OR f.id = $5)
ORDER BY f.finished_at DESC LIMIT $6)
ORDER BY created_at DESC, id DESC
LIMIT $6;
