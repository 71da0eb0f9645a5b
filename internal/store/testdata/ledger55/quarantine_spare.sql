-- Takes back the last loss of a job that others wait for in quarantine. One that has had five failures
-- or losses keeps it, so that what ends a node each time, but late, is found. $1 id, $2 turn.
-- A row that somebody has locked is not waited for: that fails.
UPDATE tenure.job j
SET losses = j.losses - 1
FROM (SELECT id FROM tenure.job WHERE id = $1 AND turn = $2 FOR NO KEY UPDATE NOWAIT) AS run
WHERE j.id = run.id AND j.turn = $2 AND j.losses > 1
  AND (SELECT count(*) FROM tenure.job_error e WHERE e.job_id = j.id) < 5;
