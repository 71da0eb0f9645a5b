-- Puts waiting jobs and timers aside, with all that they are. To be run behind removal_lock in the
-- same transaction. Running ones stay, and so do those of a tenant that is between two pools,
-- when the other one may have them, too. One that is suspended already gets the new time to be
-- resumed. $1 ids, $2 when they are to be resumed, or null, $3 whether rows that somebody has locked
-- are waited for: else they are left, and counted with those of tenants between two pools.
WITH claimed AS MATERIALIZED (
    SELECT j.id
    FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
    JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn
    WHERE run.id = ANY ($1::bigint[])),
elsewhere AS MATERIALIZED (SELECT tenant_id FROM tenure.tenant WHERE state IN ('moved', 'arriving')),
free_job AS MATERIALIZED (
    SELECT id FROM tenure.job WHERE id = ANY ($1::bigint[]) AND NOT $3::boolean FOR UPDATE SKIP LOCKED),
free_timer AS MATERIALIZED (
    SELECT id FROM tenure.timer_job WHERE id = ANY ($1::bigint[]) AND NOT $3::boolean FOR UPDATE SKIP LOCKED),
free_aside AS MATERIALIZED (
    SELECT id FROM tenure.suspended_job WHERE id = ANY ($1::bigint[]) AND NOT $3::boolean FOR UPDATE SKIP LOCKED),
w AS (
    DELETE FROM tenure.job
    WHERE id = ANY ($1::bigint[]) AND ($3 OR id IN (SELECT id FROM free_job)) AND id NOT IN (SELECT id FROM claimed) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING *),
t AS (
    DELETE FROM tenure.timer_job
    WHERE id = ANY ($1::bigint[]) AND ($3 OR id IN (SELECT id FROM free_timer)) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING *),
again AS (
    UPDATE tenure.suspended_job SET resume_at = $2
    WHERE id = ANY ($1::bigint[]) AND ($3 OR id IN (SELECT id FROM free_aside)) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING id),
fresh AS (
    INSERT INTO tenure.suspended_job ({{job}}, origin, due_at, repeat, end_at, resume_at)
    SELECT {{job | turn = turn + 1}}, 'job', NULL::timestamptz, NULL::text, NULL::timestamptz, $2 FROM w
    UNION ALL
    SELECT {{job | turn = turn + 1}}, 'timer_job', due_at, repeat, end_at, $2 FROM t
    RETURNING id)
SELECT done.suspended, done.running, found.jobs - done.suspended - done.running AS left
FROM (SELECT (SELECT count(*) FROM fresh) + (SELECT count(*) FROM again) AS suspended, (SELECT count(*) FROM claimed) AS running) done,
     (SELECT (SELECT count(*) FROM tenure.job WHERE id = ANY ($1::bigint[])) + (SELECT count(*) FROM tenure.timer_job WHERE id = ANY ($1::bigint[]))
           + (SELECT count(*) FROM tenure.suspended_job WHERE id = ANY ($1::bigint[])) AS jobs) found;
