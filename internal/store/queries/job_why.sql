-- What decides whether an unfinished job may start, as far as the ledger knows: $1 the job, whether
-- it is among the waiting jobs, the timers or those for external workers. Jobs before it, and those that it awaits, are counted up to $2. No row: it is
-- neither.
WITH job AS (
    SELECT id, turn, tenant_id, queue, kind, priority, attempt, exclusive_key, position, NULL::timestamptz AS due_at, false AS external
    FROM tenure.job WHERE id = $1
    UNION ALL
    SELECT id, turn, tenant_id, queue, kind, priority, attempt, exclusive_key, NULL, due_at, false
    FROM tenure.timer_job WHERE id = $1
    UNION ALL
    SELECT id, turn, tenant_id, queue, kind, priority, attempt, exclusive_key, position, due_at, true
    FROM tenure.external_job WHERE id = $1 AND (lock_expires_at IS NULL OR lock_expires_at <= clock_timestamp())),
flying AS MATERIALIZED (
    SELECT run.id, c.turn, c.session_id FROM tenure.claim c, unnest(c.job_ids) AS run (id)),
theirs AS MATERIALIZED ( -- its tenant's, by node
    SELECT f.session_id, count(*) AS n
    FROM job CROSS JOIN flying f
    CROSS JOIN LATERAL (SELECT o.tenant_id FROM tenure.job o WHERE o.id = f.id AND o.turn = f.turn OFFSET 0) o
    WHERE o.tenant_id = job.tenant_id
    GROUP BY f.session_id),
rival AS (
    SELECT o.id, 'running' AS state, NULL::timestamptz AS due_at, 1 AS rank, o.position
    FROM job JOIN tenure.job o ON o.tenant_id = job.tenant_id AND o.exclusive_key = job.exclusive_key AND o.id <> job.id
    WHERE (o.id, o.turn) IN (SELECT f.id, f.turn FROM flying f) AND NOT job.external
    UNION ALL
    SELECT o.id, 'retrying', o.due_at, 2, 0
    FROM job JOIN tenure.timer_job o ON o.tenant_id = job.tenant_id AND o.exclusive_key = job.exclusive_key AND o.id <> job.id
    WHERE NOT job.external AND o.attempt > 0 AND job.attempt = 0 AND (o.meta->'tenure:skip_retrying') IS DISTINCT FROM 'true'
    UNION ALL
    SELECT o.id, 'waiting', NULL, 3, o.position
    FROM job JOIN tenure.job o ON o.tenant_id = job.tenant_id AND o.exclusive_key = job.exclusive_key AND o.id <> job.id
    WHERE (o.attempt = 0, o.position) < (job.attempt = 0, job.position) AND NOT job.external
    UNION ALL
    SELECT o.id, CASE WHEN o.lock_expires_at IS NOT NULL THEN 'locked' WHEN o.due_at IS NOT NULL THEN 'retrying' ELSE 'waiting' END, o.due_at,
           CASE WHEN o.lock_expires_at IS NOT NULL THEN 1 WHEN o.due_at IS NOT NULL THEN 2 ELSE 3 END, o.position
    FROM job JOIN tenure.external_job o ON o.tenant_id = job.tenant_id AND o.exclusive_key = job.exclusive_key AND o.id <> job.id
    WHERE job.external
      AND CASE WHEN o.lock_expires_at IS NOT NULL THEN true
               WHEN o.due_at IS NOT NULL THEN o.attempt > 0 AND job.attempt = 0 AND (o.meta->'tenure:skip_retrying') IS DISTINCT FROM 'true'
               ELSE (o.attempt = 0, o.position) < (job.attempt = 0, job.position) END
    ORDER BY rank, position LIMIT 1)
SELECT job.due_at > clock_timestamp() AS later, job.due_at,
       lock.paused, lock.holder IS NOT NULL AND lock.expires_at > clock_timestamp() AS held, holder.node,
       coalesce(t.state, 'active') AS tenant_state, t.other_pool, coalesce(t.frozen, false) AS frozen,
       EXISTS (SELECT FROM tenure.node_session s
               WHERE s.state = 'live' AND s.expires_at > clock_timestamp() AND job.kind = ANY (s.kinds)) AS handled,
       rival.id AS rival, rival.state AS rival_state, rival.due_at AS rival_due,
       (SELECT count(*) FROM (
           SELECT FROM tenure.job o
           WHERE o.queue = job.queue AND o.tenant_id = job.tenant_id AND o.priority = job.priority AND o.position < job.position AND NOT job.external
             AND (o.id, o.turn) NOT IN (SELECT f.id, f.turn FROM flying f)
           LIMIT $2) AS ahead) AS ahead,
       awaited.n AS pending, awaited.ids AS awaited, awaited.dead,
       job.external, share.most, share.n, rest.scope, rest.name, rest.since
FROM job
CROSS JOIN tenure.acquire_lock lock
LEFT JOIN tenure.node_session holder ON holder.session_id = lock.holder
LEFT JOIN tenure.tenant t ON t.tenant_id = job.tenant_id
LEFT JOIN rival ON true
LEFT JOIN LATERAL (
    SELECT f.scope, f.name, f.since FROM tenure.frozen f
    WHERE (f.scope, f.name) IN (('queue', job.queue), ('kind', job.kind))
    ORDER BY f.scope DESC LIMIT 1) rest ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS n, (array_agg(p.job_id ORDER BY p.job_id))[:5] AS ids, min(d.id) AS dead
    FROM (SELECT a.job_id FROM tenure.awaited a
          WHERE a.awaiting_id = job.id AND a.outcome IS NULL AND job.due_at = tenure.never()
          ORDER BY a.outcome, a.job_id LIMIT $2) p
    LEFT JOIN tenure.dead_letter_job d ON d.id = p.job_id) awaited
LEFT JOIN LATERAL ( -- no row: some node that can run it may have another one of its tenant
    SELECT sum(s.per_tenant)::integer AS most, sum(theirs.n)::integer AS n
    FROM tenure.node_session s LEFT JOIN theirs ON theirs.session_id = s.session_id
    WHERE s.state = 'live' AND s.expires_at > clock_timestamp() AND job.kind = ANY (s.kinds)
    HAVING bool_and(coalesce(theirs.n >= s.per_tenant, false))) share ON true
WHERE lock.name = 'acquire';
