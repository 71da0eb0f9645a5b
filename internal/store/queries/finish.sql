-- Ends runs, each in its way: what failed and has attempts left, or is snoozed, is a timer, dead jobs are dead letters,
-- and what the node's stop has interrupted is returned: it waits again, uncharged, with a new turn, so that the
-- interrupted run can no longer report. All others are over, and kept if they are to be; who awaits one that was not
-- done hears that it was cancelled. A job whose claim was reaped has another turn and is left alone. One that was to run
-- again and that somebody wants cancelled is cancelled; a request that is made in this very moment is found when the job
-- is about to be claimed again.
-- $1 ids, $2 turns, $3 outcomes, $4 how long each run took, in µs, $5 errors, or why it is over, which has the time
-- at which the job ended, by which it is told from what its runs have failed with, $6 stacks, $7 delays of timers in ms,
-- $8 the node, $9 whether to keep what is finished. How many jobs have ended.
WITH said AS (
    SELECT s.*, s.outcome IN ('retrying', 'snoozed', 'returned') AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = s.id) AS unwanted
    FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
        AS s (id, turn, outcome, took_us, error, stack, delay_ms)),
returned AS (
    UPDATE tenure.job j SET turn = j.turn + 1
    FROM said WHERE j.id = said.id AND j.turn = said.turn AND said.outcome = 'returned' AND NOT said.unwanted
    RETURNING j.id),
gone AS (
    DELETE FROM tenure.job j USING said
    WHERE j.id = said.id AND j.turn = said.turn AND (said.outcome <> 'returned' OR said.unwanted)
    RETURNING j.*, CASE WHEN said.unwanted THEN 'cancelled' ELSE said.outcome END AS outcome,
        CASE WHEN said.unwanted THEN '' ELSE said.error END AS error, said.stack, said.delay_ms, said.took_us, said.unwanted),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, at, node, error, stack, began)
    SELECT id, attempt + 1, CASE WHEN outcome IN ('retrying', 'dead') THEN clock_timestamp() ELSE now() END, $8, error, nullif(stack, ''),
        CASE WHEN outcome IN ('retrying', 'dead') THEN clock_timestamp() - took_us * interval '1 microsecond' END
    FROM gone WHERE outcome IN ('retrying', 'dead') OR outcome NOT IN ('done', 'snoozed') AND error <> '' AND $9),
later AS (
    INSERT INTO tenure.timer_job ({{job}}, due_at)
    SELECT {{job | turn = turn + 1 | attempt = attempt + (outcome = 'retrying')::integer}}, clock_timestamp() + delay_ms * interval '1 ms'
    FROM gone WHERE outcome IN ('retrying', 'snoozed')),
dead AS (
    INSERT INTO tenure.dead_letter_job ({{job}}, origin, error)
    SELECT {{job | turn = turn + 1 | attempt = attempt + 1}}, 'job', error
    FROM gone WHERE outcome = 'dead'
    RETURNING id),
kept AS (
    INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node)
    SELECT {{job | attempt = attempt + 1 | payload = CASE WHEN unwanted THEN tenure.legible(payload) ELSE payload END | meta = CASE WHEN unwanted THEN tenure.legible(meta) ELSE meta END}},
        now(), outcome, now() - took_us * interval '1 microsecond', $8
    FROM gone WHERE outcome NOT IN ('retrying', 'snoozed', 'dead') AND $9),
ended AS MATERIALIZED ( -- whole rows are copied for USING
    SELECT id, tenant_id, unique_key, CASE WHEN outcome IN ('done', 'dead') THEN outcome ELSE 'cancelled' END AS outcome
    FROM gone WHERE outcome NOT IN ('retrying', 'snoozed')),
freed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
heard AS (
    DELETE FROM tenure.cancel_request r USING ended WHERE r.job_id = ended.id AND ended.outcome = 'cancelled')
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM returned)
FROM tenure.note_ends(ARRAY(SELECT id FROM ended WHERE outcome = 'done'), 'done') AS d,
     tenure.note_ends(ARRAY(SELECT id FROM ended WHERE outcome = 'cancelled'), 'cancelled') AS c,
     tenure.note_ends(ARRAY(SELECT id FROM dead), 'dead') AS l;
