-- Adds the jobs of schedules that are due and says when these are due next, in one statement and
-- under the fence: whatever happens, a job is there if and only if its schedule has gone on. What
-- was changed since it was read, what is not due as it was, and what somebody has locked stays; so
-- does what is of a tenant that rests by now. Says into which lanes jobs went, and with an empty one how many went to
-- workers outside the cluster.
-- $1 session, $2 epoch; of each schedule: $3 tenant, $4 name, $5 when it was due, $6 since when its
-- times are what they are, $7 when it is due next, or null; of each job: $8 the place of its schedule
-- among them, $9 the time that it is for; of each schedule as it was read: $10 its version, and what its kind
-- gives, $11 the queue, $12 the exclusive key, empty for none, or null if that is not known here, $13 the payload
-- as it is to be, or null: as it is.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE {{holds}}
    FOR KEY SHARE),
due AS MATERIALIZED (
    SELECT s.*, a.n, a.next, coalesce(a.queue, {{scheduled_queue}}, s.queue) AS into_queue, coalesce(a.key, s.exclusive_key) AS key, coalesce(a.payload::jsonb, s.payload) AS filled
    FROM unnest($3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $10::text[], $11::text[], $12::text[], $13::text[])
         WITH ORDINALITY AS a (tenant_id, name, seen, since, next, version, queue, key, payload, n)
    JOIN tenure.schedule s ON s.tenant_id = a.tenant_id AND s.name = a.name
    WHERE EXISTS (SELECT FROM fence)
      AND s.next_at = a.seen AND s.since = a.since AND s.xmin::text = a.version AND NOT s.paused
      AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
    FOR UPDATE OF s SKIP LOCKED),
run AS MATERIALIZED (
    SELECT due.*, r.at, r.place, nextval('tenure.job_id') AS id
    FROM unnest($8::bigint[], $9::timestamptz[]) WITH ORDINALITY AS r (n, at, place)
    JOIN due ON due.n = r.n),
last AS (
    SELECT DISTINCT ON (run.n) run.n, run.at, run.id FROM run ORDER BY run.n, run.at DESC),
advanced AS (
    UPDATE tenure.schedule s
    SET next_at = due.next, queue = due.into_queue, exclusive_key = nullif(due.key, ''), last_at = coalesce(last.at, s.last_at), last_job = coalesce(last.id, s.last_job)
    FROM due LEFT JOIN last ON last.n = due.n
    WHERE s.tenant_id = due.tenant_id AND s.name = due.name),
fired AS (
    INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, meta, priority, max_attempts, exclusive_key)
    SELECT id, tenant_id, into_queue, kind, filled,
           coalesce(meta, '{}') || jsonb_build_object('schedule', name, 'scheduled_at', at), priority, max_attempts, nullif(key, '')
    FROM run WHERE NOT external ORDER BY place
    RETURNING queue, tenant_id, priority),
outside AS (
    INSERT INTO tenure.external_job (id, tenant_id, queue, kind, payload, meta, priority, max_attempts, exclusive_key)
    SELECT id, tenant_id, into_queue, kind, filled,
           coalesce(meta, '{}') || jsonb_build_object('schedule', name, 'scheduled_at', at), priority, max_attempts, nullif(key, '')
    FROM run WHERE external ORDER BY place
    RETURNING id)
SELECT queue, tenant_id, priority, count(*) FROM fired GROUP BY queue, tenant_id, priority
UNION ALL
SELECT '', '', 0, count(*) FROM outside HAVING count(*) > 0;
