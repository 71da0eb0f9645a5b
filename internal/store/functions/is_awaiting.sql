-- Whether a job awaits others, be it suspended meanwhile.
CREATE OR REPLACE FUNCTION tenure.is_awaiting(job_id bigint) RETURNS boolean
    LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = is_awaiting.job_id AND j.due_at = tenure.never())
    OR EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = is_awaiting.job_id AND j.due_at = tenure.never())
$$;
