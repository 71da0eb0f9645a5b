-- What decides whether a tenant's jobs may start, as far as the ledger knows: $1 the tenant. Jobs are
-- counted up to $2 in each state.
WITH RECURSIVE queue AS (
    (SELECT queue FROM tenure.job ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.queue
    FROM queue CROSS JOIN LATERAL (
        SELECT j.queue FROM tenure.job j WHERE j.queue > queue.queue ORDER BY j.queue LIMIT 1) AS next),
flying AS MATERIALIZED (
    SELECT run.id, c.turn, c.session_id FROM tenure.claim c, unnest(c.job_ids) AS run (id)),
theirs AS MATERIALIZED ( -- by node
    SELECT f.session_id, count(*) AS n
    FROM flying f
    CROSS JOIN LATERAL (SELECT o.tenant_id FROM tenure.job o WHERE o.id = f.id AND o.turn = f.turn OFFSET 0) o
    WHERE o.tenant_id = $1
    GROUP BY f.session_id),
handled AS MATERIALIZED (
    SELECT DISTINCT unnest(kinds) AS kind FROM tenure.node_session WHERE state = 'live' AND expires_at > clock_timestamp()),
found AS MATERIALIZED (
    SELECT queue.queue, j.id, j.kind, (j.id, j.turn) IN (SELECT f.id, f.turn FROM flying f) AS runs
    FROM queue CROSS JOIN LATERAL (
        SELECT w.id, w.turn, w.kind FROM tenure.job w WHERE w.queue = queue.queue AND w.tenant_id = $1 LIMIT $2) j
    LIMIT $2)
SELECT lock.paused, lock.holder IS NOT NULL AND lock.expires_at > clock_timestamp() AS held, holder.node,
       coalesce(t.state, 'active') AS tenant_state, t.other_pool, coalesce(t.frozen, false) AS frozen,
       t.max_running, CASE WHEN t.over_quota_at > clock_timestamp() - interval '1 minute' THEN t.max_waiting END AS quota,
       (SELECT count(*) FROM found WHERE runs) AS running,
       (SELECT count(*) FROM found WHERE NOT runs) AS waiting,
       (SELECT count(*) FROM found WHERE NOT runs AND kind IN (SELECT kind FROM handled)) AS runnable,
       (SELECT min(id) FROM found WHERE NOT runs AND kind IN (SELECT kind FROM handled)) AS example,
       (SELECT min(kind) FROM found WHERE NOT runs AND kind NOT IN (SELECT kind FROM handled)) AS unhandled,
       (SELECT min(j.due_at) FROM tenure.timer_job j WHERE j.tenant_id = $1) AS due_at,
       (SELECT count(*) FROM (SELECT FROM tenure.suspended_job j WHERE j.tenant_id = $1 LIMIT $2) s) AS suspended,
       (SELECT count(*) FROM (SELECT FROM tenure.external_job j WHERE j.tenant_id = $1 AND j.lock_expires_at IS NULL AND j.due_at IS NULL LIMIT $2) x) AS external,
       (SELECT count(*) FROM (SELECT FROM tenure.dead_letter_job j WHERE j.tenant_id = $1 LIMIT $2) d) AS dead,
       share.most, rest.scope, rest.name, rest.since
FROM tenure.acquire_lock lock
LEFT JOIN tenure.node_session holder ON holder.session_id = lock.holder
LEFT JOIN tenure.tenant t ON t.tenant_id = $1
LEFT JOIN LATERAL ( -- no row: some job waits of whose queue and kind neither is frozen, or none waits
    SELECT f.scope, f.name, f.since FROM tenure.frozen f
    WHERE NOT EXISTS (SELECT FROM found
                      WHERE NOT runs AND queue NOT IN (SELECT name FROM tenure.frozen WHERE scope = 'queue')
                        AND kind NOT IN (SELECT name FROM tenure.frozen WHERE scope = 'kind'))
      AND EXISTS (SELECT FROM found WHERE NOT runs AND (f.scope, f.name) IN (('queue', queue), ('kind', kind)))
    ORDER BY f.scope DESC, f.name LIMIT 1) rest ON true
LEFT JOIN LATERAL ( -- no row: some node that can run what waits may have another one of the tenant's
    SELECT sum(s.per_tenant)::integer AS most
    FROM tenure.node_session s LEFT JOIN theirs ON theirs.session_id = s.session_id
    WHERE s.state = 'live' AND s.expires_at > clock_timestamp() AND EXISTS (SELECT FROM found WHERE NOT runs AND kind = ANY (s.kinds))
    HAVING bool_and(coalesce(theirs.n >= s.per_tenant, false))) share ON true
WHERE lock.name = 'acquire';
