-- What a pool has to do, for who looks every second: who holds the acquire lock, its jobs, counted up to
-- $1 beside those that nodes have in hand, these, likewise those that wait for workers outside the cluster, for how long one
-- of the oldest that wait could have started, and likewise counted dead letters, timers, jobs that await others, jobs of external workers and suspended ones;
-- how many finished jobs are kept, as Postgres estimates; and what it has counted since its statistics began:
-- rows that came into tenure.job and left it, and that came among the finished jobs, the dead letters and the
-- failed runs.
WITH flying AS MATERIALIZED ( -- a claim stands until its last job has ended
    SELECT run.id FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
    CROSS JOIN LATERAL (SELECT FROM tenure.job j WHERE j.id = run.id AND j.turn = c.turn OFFSET 0) there),
outside AS MATERIALIZED (
    SELECT count(*) AS waiting, min(e.ready_at) FILTER (WHERE isfinite(e.ready_at)) AS oldest
    FROM (SELECT coalesce(ready_at, created_at) AS ready_at FROM tenure.external_job WHERE lock_expires_at IS NULL AND due_at IS NULL LIMIT $1) e),
counted AS MATERIALIZED (
    SELECT sum(n_tup_ins) FILTER (WHERE relname = 'job') AS added, sum(n_tup_del) FILTER (WHERE relname = 'job') AS ended,
           sum(n_tup_ins) FILTER (WHERE relname LIKE 'completed\_job%') AS finished, sum(n_tup_ins) FILTER (WHERE relname = 'dead_letter_job') AS died,
           sum(n_tup_ins) FILTER (WHERE relname = 'job_error') AS failed, sum(n_live_tup) FILTER (WHERE relname LIKE 'completed\_job%') AS kept
    FROM pg_stat_all_tables WHERE schemaname = 'tenure')
SELECT l.holder IS NOT NULL AND l.expires_at > clock_timestamp() AS held, coalesce(s.node, '') AS node, l.epoch, l.paused,
       (SELECT count(*) FROM (SELECT FROM tenure.job LIMIT $1 + (SELECT count(*) FROM flying)) j) AS jobs,
       (SELECT count(*) FROM flying) AS running,
       o.waiting AS outside,
       coalesce(extract(epoch FROM clock_timestamp() - least(o.oldest, (
           SELECT min(j.ready_at) FILTER (WHERE isfinite(j.ready_at))
           FROM (SELECT coalesce(j.ready_at, j.created_at) AS ready_at FROM tenure.job j -- one with a low id may have been a timer until now
                 WHERE j.id NOT IN (SELECT unnest(job_ids) AS id FROM tenure.claim) ORDER BY j.id LIMIT 1000) j))), 0)::double precision AS oldest,
       (SELECT count(*) FROM (SELECT FROM tenure.dead_letter_job LIMIT $1) d) AS dead,
       (SELECT count(*) FROM (SELECT FROM tenure.timer_job t WHERE t.due_at <> tenure.never() LIMIT $1) t) AS timers,
       (SELECT count(*) FROM (SELECT FROM tenure.timer_job t WHERE t.due_at = tenure.never() LIMIT $1) t) AS awaiting,
       (SELECT count(*) FROM (SELECT FROM tenure.external_job LIMIT $1) e) AS external,
       (SELECT count(*) FROM (SELECT FROM tenure.suspended_job LIMIT $1) u) AS suspended,
       coalesce(c.kept, 0)::bigint AS kept,
       coalesce(c.added, 0)::bigint AS added, coalesce(c.ended, 0)::bigint AS ended,
       coalesce(c.finished, 0)::bigint AS finished, coalesce(c.died, 0)::bigint AS died, coalesce(c.failed, 0)::bigint AS failed
FROM tenure.acquire_lock l
CROSS JOIN counted c
CROSS JOIN outside o
LEFT JOIN tenure.node_session s ON s.session_id = l.holder
WHERE l.name = 'acquire';
