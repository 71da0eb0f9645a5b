-- Puts jobs back whose run was interrupted by the node's stop: not charged, and
-- with a new turn, so that the interrupted run can no longer report.
-- $1 ids, $2 turns.
UPDATE tenure.job j
SET turn = j.turn + 1
FROM unnest($1::bigint[], $2::integer[]) AS s (id, turn)
WHERE j.id = s.id AND j.turn = s.turn;
