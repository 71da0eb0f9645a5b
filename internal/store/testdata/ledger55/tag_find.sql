-- The newest of the jobs that have all of some tags, by their ids. It follows one of them and looks each
-- job's others up, and of a job that is to be in a state, whether it stands where jobs in it do: few may.
-- $1 tenant or null, $2 tags, each once, $3 the id to read before, $4 how many, $5 the tag to follow,
-- $6 state or null.
SELECT t.job_id
FROM tenure.job_tag t
WHERE t.tag = $5 AND ($1::text IS NULL OR t.tenant_id = $1) AND t.job_id < $3
  AND (SELECT count(*) FROM tenure.job_tag o WHERE o.tenant_id = t.tenant_id AND o.tag = ANY ($2::text[]) AND o.job_id = t.job_id) = cardinality($2::text[])
  AND CASE
      WHEN $6::text = 'dead' THEN EXISTS (SELECT FROM tenure.dead_letter_job j WHERE j.id = t.job_id)
      WHEN $6 = 'suspended' THEN EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = t.job_id)
      WHEN $6 IN ('claimed', 'running') THEN EXISTS (SELECT FROM tenure.job j WHERE j.id = t.job_id)
      WHEN $6 = 'waiting' THEN EXISTS (SELECT FROM tenure.job j WHERE j.id = t.job_id) OR EXISTS (SELECT FROM tenure.external_job j WHERE j.id = t.job_id)
      WHEN $6 = 'awaiting' THEN EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = t.job_id)
      WHEN $6 IN ('scheduled', 'retrying') THEN EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = t.job_id) OR EXISTS (SELECT FROM tenure.external_job j WHERE j.id = t.job_id)
      WHEN $6 = 'locked' THEN EXISTS (SELECT FROM tenure.external_job j WHERE j.id = t.job_id)
      ELSE true
      END
ORDER BY t.job_id DESC
LIMIT $4;
