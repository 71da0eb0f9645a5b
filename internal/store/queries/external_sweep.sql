-- Makes jobs of external workers wait whose lock has expired, or whose time has come, these behind what waits already, and dead
-- letters of those that lost their worker too often. $1 how many at most of a topic, $2 how many expired locks are too many, $3 the topic, or null: of each. Those who acquire jobs of a topic do so first; for the others it is the holder's
-- maintenance. Those stay whose row somebody has locked, or whose tenant is between two pools. The
-- number of those that were not left.
WITH RECURSIVE elsewhere AS MATERIALIZED (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving')),
lock_topic AS (
    SELECT coalesce($3::text, (SELECT min(kind) FROM tenure.external_job WHERE lock_expires_at IS NOT NULL)) AS kind
    UNION ALL
    SELECT (SELECT min(j.kind) FROM tenure.external_job j WHERE j.lock_expires_at IS NOT NULL AND j.kind > l.kind)
    FROM lock_topic l WHERE l.kind IS NOT NULL AND $3 IS NULL),
due_topic AS (
    SELECT coalesce($3, (SELECT min(kind) FROM tenure.external_job WHERE due_at IS NOT NULL)) AS kind
    UNION ALL
    SELECT (SELECT min(j.kind) FROM tenure.external_job j WHERE j.due_at IS NOT NULL AND j.kind > d.kind)
    FROM due_topic d WHERE d.kind IS NOT NULL AND $3 IS NULL),
late AS MATERIALIZED (
    SELECT j.id, NULL::timestamptz AS due_at FROM lock_topic CROSS JOIN LATERAL (
        SELECT x.id FROM tenure.external_job x
        WHERE x.kind = lock_topic.kind AND x.lock_expires_at <= (SELECT clock_timestamp()) AND x.tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
        ORDER BY x.lock_expires_at LIMIT $1
        FOR UPDATE SKIP LOCKED) j
    UNION ALL
    SELECT j.id, j.due_at FROM due_topic CROSS JOIN LATERAL (
        SELECT x.id, x.due_at FROM tenure.external_job x
        WHERE x.kind = due_topic.kind AND x.due_at <= (SELECT clock_timestamp()) AND x.tenant_id NOT IN (SELECT tenant_id FROM elsewhere)
        ORDER BY x.due_at LIMIT $1
        FOR UPDATE SKIP LOCKED) j),
placed AS MATERIALIZED ( -- in the order of their times
    SELECT t.id, nextval('tenure.job_position') AS position FROM (SELECT id FROM late WHERE due_at IS NOT NULL ORDER BY due_at, id) t),
freed AS (
    UPDATE tenure.external_job j
    SET turn = j.turn + 1, losses = j.losses + (j.lock_expires_at IS NOT NULL)::integer,
        locked_by = NULL, lock_expires_at = NULL, acquired_at = NULL, due_at = NULL, ready_at = coalesce(j.due_at, j.ready_at),
        position = coalesce(placed.position, j.position)
    FROM late LEFT JOIN placed USING (id)
    WHERE j.id = late.id AND (j.lock_expires_at IS NULL OR j.losses + 1 < $2)),
gone AS (
    DELETE FROM tenure.external_job j USING late
    WHERE j.id = late.id AND j.lock_expires_at IS NOT NULL AND j.losses + 1 >= $2
    RETURNING j.*, 'the lock of ' || j.locked_by || ' expired: ' || (j.losses + 1) || ' workers did not come back' AS error),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error)
    SELECT id, attempt, locked_by, error FROM gone),
ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM gone), -- whole rows are copied for USING
unkeyed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
dead AS (
    INSERT INTO tenure.dead_letter_job ({{job}}, origin, error)
    SELECT {{job legible | turn = turn + 1 | losses = losses + 1}}, 'external_job', error FROM gone
    RETURNING id)
SELECT (SELECT count(*) FROM late) FROM tenure.note_ends(ARRAY(SELECT id FROM dead), 'dead');
