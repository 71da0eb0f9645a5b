-- Takes back the loss that was charged for runs of a session that was declared dead, by
-- the process that ran them: it lives, so none of them has ended it. A job that has been
-- lost again since, or has ended, is left alone. So is one that has failed or was lost ten
-- times: it may be what makes processes stand still.
-- $1 ids, $2 the turns of those runs.
UPDATE tenure.job j
SET losses = j.losses - 1
FROM unnest($1::bigint[], $2::integer[]) AS run (id, turn)
WHERE j.id = run.id AND j.turn = run.turn + 1 AND j.losses > 0
  AND (SELECT count(*) FROM tenure.job_error e WHERE e.job_id = j.id) < 10;
