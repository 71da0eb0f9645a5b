-- Removes what the default partition and the errors hold beyond the retention time,
-- a batch at a time, but for rows that somebody has locked, and says whether there may be more.
-- $1 retention in ms, $2 the most to remove of either.
WITH old AS (
    DELETE FROM tenure.completed_job_rest
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM tenure.completed_job_rest
                            WHERE finished_at < clock_timestamp() - $1::bigint * interval '1 ms' LIMIT $2
                            FOR UPDATE SKIP LOCKED))
    RETURNING 1),
errors AS (
    DELETE FROM tenure.job_error
    WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM tenure.job_error e
                            WHERE e.at < clock_timestamp() - greatest($1::bigint, 604800000) * interval '1 ms'
                              AND NOT EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.timer_job t WHERE t.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.external_job x WHERE x.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.suspended_job s WHERE s.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = e.job_id)
                            LIMIT $2
                            FOR UPDATE OF e SKIP LOCKED))
    RETURNING 1)
SELECT (SELECT count(*) FROM old) >= $2::bigint OR (SELECT count(*) FROM errors) >= $2::bigint AS more;
