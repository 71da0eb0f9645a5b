-- Has the locks of external workers expire later, or earlier: each after so many ms, $4, from now.
-- $1 ids, $2 turns, $3 workers. The ids of those whose lock still is the caller's. An expired one is
-- until somebody else has taken the job.
UPDATE tenure.external_job j SET lock_expires_at = clock_timestamp() + $4::bigint * interval '1 ms'
FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS said (id, turn, worker)
WHERE j.id = said.id AND j.turn = said.turn AND j.locked_by = said.worker AND j.lock_expires_at IS NOT NULL
  AND j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
RETURNING j.id;
