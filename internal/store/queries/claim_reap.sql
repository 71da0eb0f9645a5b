-- Takes back claims of ended sessions, up to 50 behind the claim $4, under the fence. A
-- job's turn is raised, so whatever its old run still reports finds no row. A run that
-- had started counts as a loss, recorded before the job can start again; the job that
-- reaches the limit is its own prime suspect and goes to the dead letters. One that
-- somebody wanted cancelled ends here.
-- No row is waited for. A claim that somebody has locked is left for the next time, and
-- so is a job that somebody has locked: it stays in its claim.
-- $1 and $2 the caller's session and epoch, $3 how many losses a job may have, $5 whether
-- to keep cancelled jobs.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE {{holds}}
    FOR KEY SHARE),
lost AS MATERIALIZED (
    SELECT l.id, l.turn, l.job_ids, (l.started_at IS NOT NULL)::int::smallint AS loss, s.node
    FROM tenure.claim l JOIN tenure.node_session s USING (session_id)
    WHERE EXISTS (SELECT FROM fence) AND s.state <> 'live' AND l.id > $4
    ORDER BY l.id LIMIT 50
    FOR UPDATE OF l SKIP LOCKED),
listed AS MATERIALIZED (
    SELECT lost.id AS claim_id, j.id, j.turn, lost.loss, lost.node
    FROM lost CROSS JOIN LATERAL unnest(lost.job_ids) AS u (id)
    JOIN tenure.job j ON j.id = u.id AND j.turn = lost.turn),
run AS MATERIALIZED (
    SELECT j.id, listed.turn, listed.loss, listed.node,
        EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = j.id) AS unwanted
    FROM listed JOIN tenure.job j ON j.id = listed.id AND j.turn = listed.turn
    FOR UPDATE OF j SKIP LOCKED),
held AS MATERIALIZED (
    SELECT claim_id, array_agg(id) AS job_ids FROM listed
    WHERE id NOT IN (SELECT id FROM run)
    GROUP BY claim_id),
removed AS (
    DELETE FROM tenure.claim
    WHERE id IN (SELECT id FROM lost) AND id NOT IN (SELECT claim_id FROM held)),
kept_back AS (
    UPDATE tenure.claim c SET job_ids = held.job_ids FROM held
    WHERE c.id = held.claim_id AND cardinality(c.job_ids) <> cardinality(held.job_ids)),
unwanted AS (
    DELETE FROM tenure.job j USING run
    WHERE j.id = run.id AND j.turn = run.turn AND run.unwanted
    RETURNING j.*, run.loss, run.node),
dead AS (
    DELETE FROM tenure.job j USING run
    WHERE j.id = run.id AND j.turn = run.turn AND NOT run.unwanted AND j.losses + run.loss >= $3
    RETURNING j.*, run.node),
dead_lettered AS (
    INSERT INTO tenure.dead_letter_job ({{job}}, origin, error)
    SELECT {{job legible | turn = turn + 1 | losses = losses + 1}}, 'job', format('its node was lost %s times while it ran, the last time node %s', losses + 1, node)
    FROM dead
    RETURNING id),
gone AS (
    SELECT {{job | losses = losses + loss AS losses}}, $5::boolean AS keep, NULL::timestamptz AS started_at, NULL::text AS node, NULL::boolean AS external
    FROM unwanted),
{{cancelled}},
dead_ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM dead),
dead_freed AS (
    DELETE FROM tenure.unique_job u USING dead_ended d
    WHERE u.tenant_id = d.tenant_id AND u.key = d.unique_key AND u.job_id = d.id),
back AS (
    UPDATE tenure.job j SET turn = j.turn + 1, losses = j.losses + run.loss
    FROM run
    WHERE j.id = run.id AND j.turn = run.turn AND NOT run.unwanted AND j.losses + run.loss < $3
    RETURNING j.id, j.attempt, run.loss, run.node),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error)
    SELECT id, attempt + 1, node, 'the node was lost while the job ran'
    FROM (SELECT id, attempt, node FROM back WHERE loss > 0
          UNION ALL SELECT id, attempt, node FROM unwanted WHERE loss > 0
          UNION ALL SELECT id, attempt, node FROM dead) AS charged)
SELECT (SELECT count(*) FROM fence) AS fence_stands,
       (SELECT count(*) FROM lost) AS claims,
       (SELECT coalesce(max(id), 0) FROM lost) AS last_claim,
       (SELECT count(*) FROM back) AS jobs_back,
       (SELECT count(*) FROM dead) AS jobs_dead,
       (SELECT count(*) FROM unwanted) AS jobs_cancelled,
       (SELECT coalesce(sum(cardinality(job_ids)), 0) FROM held) AS jobs_held
FROM tenure.note_ends(ARRAY(SELECT id FROM dead_lettered), 'dead') AS dead_noted, tenure.note_ends(ARRAY(SELECT id FROM unwanted), 'cancelled') AS cancelled_noted;
