-- Removes what runs said of themselves once their jobs are neither unfinished nor among the finished
-- ones, whose last day is dropped by then: a batch at a time, but for rows that somebody has
-- locked, and counts what it has removed. A job's runs go together. $1 retention in ms, $2 how many at
-- most.
WITH day AS (
    SELECT clock_timestamp() - $1::bigint * interval '1 ms' - interval '1 day' AS ended),
gone AS (
    DELETE FROM tenure.job_report
    WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM tenure.job_report r, day
                            WHERE r.written_at < day.ended
                              AND NOT EXISTS (SELECT FROM tenure.job_report l WHERE l.job_id = r.job_id AND l.written_at >= day.ended)
                              AND NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = r.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.timer_job t WHERE t.id = r.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.external_job x WHERE x.id = r.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.suspended_job s WHERE s.id = r.job_id)
                              AND NOT EXISTS (SELECT FROM tenure.dead_letter_job d WHERE d.id = r.job_id)
                            LIMIT $2
                            FOR UPDATE OF r SKIP LOCKED))
    RETURNING 1)
SELECT count(*) FROM gone;
