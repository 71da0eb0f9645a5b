-- Frees the unique keys of jobs that stand in no table of unfinished jobs any more.
-- $1 tenants, $2 keys, $3 ids.
DELETE FROM tenure.unique_job u
USING unnest($1::text[], $2::text[], $3::bigint[]) AS f (tenant_id, key, id)
WHERE u.tenant_id = f.tenant_id AND u.key = f.key AND u.job_id = f.id
  AND NOT EXISTS (SELECT FROM tenure.job WHERE id = f.id)
  AND NOT EXISTS (SELECT FROM tenure.timer_job WHERE id = f.id)
  AND NOT EXISTS (SELECT FROM tenure.suspended_job WHERE id = f.id);
