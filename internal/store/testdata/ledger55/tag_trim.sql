-- Looks at the next tags of jobs. Of those that lead to no job any more that is unfinished or dead it notes
-- when that was noticed, and those that have done so for the retention time, and for the day that a
-- partition may outlive it, it removes. Finished jobs are not looked up: they are not found by their id
-- as fast as that. A row: the last one that was looked at. $1 tenant, $2 tag, $3 id to read on after,
-- $4 how many, $5 retention in ms.
WITH next AS MATERIALIZED (
    SELECT t.tenant_id, t.tag, t.job_id, t.gone_at FROM tenure.job_tag t
    WHERE (t.tenant_id, t.tag, t.job_id) > ($1::text, $2::text, $3::bigint)
    ORDER BY t.tenant_id, t.tag, t.job_id
    LIMIT $4),
gone AS (
    UPDATE tenure.job_tag t SET gone_at = clock_timestamp() FROM next n
    WHERE t.tenant_id = n.tenant_id AND t.tag = n.tag AND t.job_id = n.job_id
      AND n.gone_at IS NULL
      AND NOT EXISTS (SELECT FROM tenure.job j WHERE j.id = n.job_id)
      AND NOT EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = n.job_id)
      AND NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.id = n.job_id)
      AND NOT EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = n.job_id)
      AND NOT EXISTS (SELECT FROM tenure.dead_letter_job j WHERE j.id = n.job_id)),
removed AS (
    DELETE FROM tenure.job_tag t USING next n
    WHERE t.tenant_id = n.tenant_id AND t.tag = n.tag AND t.job_id = n.job_id
      AND n.gone_at < clock_timestamp() - $5::bigint * interval '1 ms' - interval '1 day' AND t.gone_at = n.gone_at)
SELECT n.tenant_id, n.tag, n.job_id FROM next n
ORDER BY n.tenant_id DESC, n.tag DESC, n.job_id DESC
LIMIT 1;
