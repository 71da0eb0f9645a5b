-- Whether a job has not come to its end, as which a dead letter counts.
CREATE OR REPLACE FUNCTION tenure.is_unfinished(job_id bigint) RETURNS boolean
    LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM tenure.job j WHERE j.id = job_id)
    OR EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = job_id)
    OR EXISTS (SELECT FROM tenure.external_job j WHERE j.id = job_id)
    OR EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = job_id)
$$;
