-- Gives jobs of external workers back unfinished, uncharged, to their old place. $1 ids, $2 turns,
-- $3 workers. The ids of those whose lock was the caller's.
UPDATE tenure.external_job j SET turn = j.turn + 1, locked_by = NULL, lock_expires_at = NULL, acquired_at = NULL
FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS said (id, turn, worker)
WHERE j.id = said.id AND j.turn = said.turn AND j.locked_by = said.worker
  AND j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
RETURNING j.id;
