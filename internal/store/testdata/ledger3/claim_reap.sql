-- Takes back up to 50 claims of ended sessions, under the fence. A job's turn is
-- raised, so whatever its old run still reports finds no row. A run that had
-- started counts as a loss, recorded before the job can start again; the job that
-- reaches the limit is its own prime suspect and goes to the dead letters.
-- $1 and $2 the caller's session and epoch, $3 how many losses a job may have.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE name = 'acquire' AND holder = $1 AND epoch = $2 AND NOT paused AND expires_at > clock_timestamp()
    FOR KEY SHARE),
lost AS (
    DELETE FROM tenure.claim
    WHERE EXISTS (SELECT FROM fence)
      AND id IN (SELECT c.id FROM tenure.claim c JOIN tenure.node_session s USING (session_id)
                 WHERE s.state <> 'live' ORDER BY c.id LIMIT 50)
    RETURNING id, session_id, turn, job_ids, started_at),
run AS (
    SELECT unnest(l.job_ids) AS id, l.turn, (l.started_at IS NOT NULL)::int::smallint AS loss, s.node
    FROM lost l JOIN tenure.node_session s USING (session_id)),
dead AS (
    DELETE FROM tenure.job j USING run
    WHERE j.id = run.id AND j.turn = run.turn AND j.losses + run.loss >= $3
    RETURNING j.*, run.node),
buried AS (
    INSERT INTO tenure.dead_letter_job (id, created_at, turn, timeout_ms, priority, attempt, max_attempts, losses,
        tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, origin, error)
    SELECT id, created_at, turn + 1, timeout_ms, priority, attempt, max_attempts, losses + 1,
        tenant_id, queue, kind, payload, meta, exclusive_key, unique_key, correlation_id, 'job',
        format('its node was lost %s times while it ran, the last time node %s', losses + 1, node)
    FROM dead),
freed AS (
    DELETE FROM tenure.unique_job u USING dead
    WHERE u.tenant_id = dead.tenant_id AND u.key = dead.unique_key AND u.job_id = dead.id),
back AS (
    UPDATE tenure.job j SET turn = j.turn + 1, losses = j.losses + run.loss
    FROM run
    WHERE j.id = run.id AND j.turn = run.turn AND j.losses + run.loss < $3
    RETURNING j.id, j.attempt, run.loss, run.node),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error)
    SELECT id, attempt + 1, node, 'the node was lost while the job ran' FROM back WHERE loss > 0
    UNION ALL
    SELECT id, attempt + 1, node, 'the node was lost while the job ran' FROM dead)
SELECT (SELECT count(*) FROM fence) AS fence_stands,
       (SELECT count(*) FROM lost) AS claims,
       (SELECT count(*) FROM back) AS jobs_back,
       (SELECT count(*) FROM dead) AS jobs_dead;
