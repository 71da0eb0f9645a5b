-- Changes a job that is not running: a waiting one, a timer, a suspended one, or one for external
-- workers whose lock, if it had one, has expired: that worker is lost then. To be run behind
-- removal_lock in the same transaction. A waiting one that gets another priority goes behind
-- those that wait there, as cursors may have passed its place; one that gets a time becomes a
-- timer. One of a tenant that is between two pools stays as it is, when the other one may have it,
-- too. $1 id, $2 priority, $3 when it is due, $4 attempts at most, $5 timeout in ms; null: as it
-- is. A row: its lane, and in how many ms it is due, null when it waits or is suspended. None: it
-- stands nowhere, or is running.
WITH claimed AS MATERIALIZED (
    SELECT j.id FROM tenure.job j JOIN tenure.claim c ON j.id = ANY (c.job_ids) AND c.turn = j.turn
    WHERE j.id = $1),
elsewhere AS MATERIALIZED (SELECT tenant_id FROM tenure.tenant WHERE state IN ('moved', 'arriving')),
stays AS (
    UPDATE tenure.job
    SET priority = coalesce($2, priority), max_attempts = coalesce($4, max_attempts), timeout_ms = coalesce($5, timeout_ms),
        position = CASE WHEN $2 <> priority THEN nextval('tenure.job_position') ELSE position END
    WHERE id = $1 AND $3::timestamptz IS NULL
      AND id NOT IN (SELECT id FROM claimed) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING queue, tenant_id, priority),
gone AS (
    DELETE FROM tenure.job
    WHERE id = $1 AND $3::timestamptz IS NOT NULL
      AND id NOT IN (SELECT id FROM claimed) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING *),
put_off AS (
    INSERT INTO tenure.timer_job ({{job}}, due_at)
    SELECT {{job | turn = turn + 1 | timeout_ms = coalesce($5, timeout_ms) | priority = coalesce($2, priority) | max_attempts = coalesce($4, max_attempts)}}, $3
    FROM gone
    RETURNING queue, tenant_id, priority, due_at),
timer AS (
    UPDATE tenure.timer_job
    SET priority = coalesce($2, priority), max_attempts = coalesce($4, max_attempts), timeout_ms = coalesce($5, timeout_ms),
        due_at = coalesce($3, due_at)
    WHERE id = $1 AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING queue, tenant_id, priority, due_at),
aside AS (
    UPDATE tenure.suspended_job
    SET priority = coalesce($2, priority), max_attempts = coalesce($4, max_attempts), timeout_ms = coalesce($5, timeout_ms),
        due_at = coalesce($3, due_at), origin = CASE WHEN $3 IS NULL OR origin = 'external_job' THEN origin ELSE 'timer_job' END
    WHERE id = $1 AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING queue, tenant_id, priority),
outside AS (
    UPDATE tenure.external_job
    SET priority = coalesce($2, priority), max_attempts = coalesce($4, max_attempts), timeout_ms = coalesce($5, timeout_ms),
        due_at = CASE WHEN $3::timestamptz IS NULL THEN due_at WHEN $3 > clock_timestamp() THEN $3 END,
        ready_at = CASE WHEN due_at IS NOT NULL AND $3 <= clock_timestamp() THEN clock_timestamp() ELSE ready_at END,
        position = CASE WHEN due_at IS NOT NULL AND $3 <= clock_timestamp() THEN nextval('tenure.job_position') ELSE position END,
        turn = turn + (lock_expires_at IS NOT NULL)::integer, losses = losses + (lock_expires_at IS NOT NULL)::integer,
        locked_by = NULL, lock_expires_at = NULL, acquired_at = NULL
    WHERE id = $1 AND (lock_expires_at IS NULL OR lock_expires_at <= clock_timestamp()) AND tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
    RETURNING queue, tenant_id, priority)
SELECT queue, tenant_id, priority, NULL::bigint AS due_in FROM (SELECT * FROM stays UNION ALL SELECT * FROM aside UNION ALL SELECT * FROM outside) undelayed
UNION ALL
SELECT queue, tenant_id, priority, greatest(1, ceil(extract(epoch FROM least(due_at, clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000))::bigint
FROM (SELECT * FROM put_off UNION ALL SELECT * FROM timer) delayed;
