-- Removes what the default partition and the errors hold beyond the retention time,
-- a batch at a time, but for rows that somebody has locked. $1 retention in ms.
WITH old AS (
    DELETE FROM tenure.completed_job_rest
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM tenure.completed_job_rest
                            WHERE finished_at < clock_timestamp() - $1::bigint * interval '1 ms' LIMIT 5000
                            FOR UPDATE SKIP LOCKED))
    RETURNING 1),
errors AS (
    DELETE FROM tenure.job_error
    WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM tenure.job_error e
                            WHERE e.at < clock_timestamp() - greatest($1::bigint, 604800000) * interval '1 ms'
                              AND NOT EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.timer_job t WHERE t.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.external_job x WHERE x.id = e.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = e.job_id)
                            LIMIT 5000
                            FOR UPDATE OF e SKIP LOCKED))
    RETURNING 1)
SELECT (SELECT count(*) FROM old) + (SELECT count(*) FROM errors);
