-- Puts jobs of external workers aside, as suspend_jobs does with others: $1 ids, $2 when they are to
-- be resumed, or null, $3 whether rows that somebody has locked are waited for. One that a worker
-- has locked goes on.
WITH free AS MATERIALIZED (
    SELECT id FROM tenure.external_job WHERE id = ANY ($1::bigint[]) AND NOT $3::boolean FOR UPDATE SKIP LOCKED),
running AS MATERIALIZED (
    SELECT id FROM tenure.external_job WHERE id = ANY ($1::bigint[]) AND lock_expires_at > clock_timestamp()),
gone AS (
    DELETE FROM tenure.external_job
    WHERE id = ANY ($1::bigint[]) AND ($3 OR id IN (SELECT id FROM free)) AND (lock_expires_at IS NULL OR lock_expires_at <= clock_timestamp())
      AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING *),
aside AS (
    INSERT INTO tenure.suspended_job ({{job}}, origin, due_at, repeat, end_at, resume_at)
    SELECT {{job | turn = turn + 1 | losses = losses + (lock_expires_at IS NOT NULL)::integer}}, 'external_job', due_at, NULL, NULL, $2::timestamptz
    FROM gone
    RETURNING id)
SELECT done.suspended, done.running, done.jobs - done.suspended - done.running AS left
FROM (SELECT (SELECT count(*) FROM aside) AS suspended, (SELECT count(*) FROM running) AS running,
             (SELECT count(*) FROM tenure.external_job WHERE id = ANY ($1::bigint[])) AS jobs) done;
