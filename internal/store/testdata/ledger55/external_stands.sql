-- Which locks of external workers stand here: $1 ids, $2 turns, $3 workers. tenant_id and other_pool are
-- null, unless the tenant is between two pools, of which the other one may have the job, too.
SELECT j.id, t.tenant_id, t.other_pool
FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS said (id, turn, worker)
JOIN tenure.external_job j ON j.id = said.id AND j.turn = said.turn AND j.locked_by = said.worker
LEFT JOIN tenure.tenant t ON t.tenant_id = j.tenant_id AND t.state IN ('moved', 'arriving');
