-- Looks among the next $2 jobs behind the id $1 that await others for those that may await nothing any
-- more, or were started by hand, and has them looked at when ends are taken in next. Its row is the last
-- job that was looked at; 0: there are no more.
WITH page AS MATERIALIZED (
    SELECT w.job_id, w.tenant_id, w.on_failure FROM tenure.awaiting w
    WHERE w.closed_at IS NULL AND w.job_id > $1
    ORDER BY w.job_id LIMIT $2),
noted AS (
    INSERT INTO tenure.awaited_end (tenant_id, awaiting_id)
    SELECT p.tenant_id, p.job_id FROM page p
    WHERE p.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
      AND p.job_id NOT IN (SELECT e.awaiting_id FROM tenure.awaited_end e WHERE e.awaiting_id IS NOT NULL)
      AND (NOT EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = p.job_id AND a.outcome IS NULL)
           OR p.on_failure <> 'run' AND EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = p.job_id AND a.outcome IN ('dead', 'cancelled'))
           OR NOT tenure.is_awaiting(p.job_id)))
SELECT CASE WHEN count(*) = $2::bigint THEN max(job_id) ELSE 0 END AS last_job FROM page;
