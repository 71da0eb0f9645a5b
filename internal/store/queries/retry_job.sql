-- Makes a dead or back-off-waiting or delayed job wait to run now, by nodes or external workers. A dead one gets
-- all its attempts again. All in one statement: with a priority that came later it might run before
-- that, and die again. That somebody wanted its last run cancelled does not hold for
-- the next one. No row: it stands in none of these, or its tenant
-- is between two pools, when the other one may have it, too. "taken" is not null when
-- nothing was done because another job has taken its unique key meanwhile: that job's
-- id, or 0 when it came too late to be seen here. $1 id, $2 the priority it is to have, null: as it is.
WITH dead AS (
    SELECT * FROM tenure.dead_letter_job WHERE id = $1
      AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    FOR UPDATE),
keyed AS (
    INSERT INTO tenure.unique_job (tenant_id, key, job_id)
    SELECT tenant_id, unique_key, id FROM dead WHERE unique_key IS NOT NULL
    ON CONFLICT (tenant_id, key) DO NOTHING
    RETURNING job_id),
risen AS (
    DELETE FROM tenure.dead_letter_job d
    WHERE d.id IN (SELECT id FROM dead) AND (d.unique_key IS NULL OR EXISTS (SELECT FROM keyed))
    RETURNING *),
hurried AS (
    DELETE FROM tenure.timer_job WHERE id = $1
      AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING *),
moved AS (
    INSERT INTO tenure.job ({{job}})
    SELECT {{job | turn = turn + 1 | priority = coalesce($2::smallint, priority) | attempt = 0 | losses = 0}}
    FROM risen WHERE origin <> 'external_job'
    UNION ALL
    SELECT {{job | turn = turn + 1 | priority = coalesce($2::smallint, priority)}} FROM hurried
    RETURNING id, tenant_id, queue, priority),
outside AS (
    INSERT INTO tenure.external_job ({{job}}, due_at)
    SELECT {{job | turn = turn + 1 | priority = coalesce($2::smallint, priority) | attempt = 0 | losses = 0}}, NULL
    FROM risen WHERE origin = 'external_job'
    RETURNING tenant_id, queue, priority),
sooner AS (
    UPDATE tenure.external_job
    SET due_at = NULL, turn = turn + 1, priority = coalesce($2::smallint, priority), ready_at = clock_timestamp(), position = nextval('tenure.job_position')
    WHERE id = $1 AND due_at IS NOT NULL
      AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    RETURNING tenant_id, queue, priority),
unasked AS (
    DELETE FROM tenure.cancel_request r USING moved WHERE r.job_id = moved.id)
SELECT tenant_id, queue, priority, NULL::bigint AS taken FROM moved
UNION ALL
SELECT *, NULL FROM outside
UNION ALL
SELECT *, NULL FROM sooner
UNION ALL
SELECT d.tenant_id, d.queue, d.priority,
    coalesce((SELECT u.job_id FROM tenure.unique_job u WHERE u.tenant_id = d.tenant_id AND u.key = d.unique_key), 0)
FROM dead d WHERE d.unique_key IS NOT NULL AND NOT EXISTS (SELECT FROM keyed);
