-- Puts off, by ten minutes, the suspended jobs that are to be resumed and cannot be read, among those that
-- resume_jobs would move. Those whose row somebody has locked are left alone. $1 the most to look at.
WITH due AS MATERIALIZED (
    SELECT j.id, coalesce(tenure.damage(j.payload), tenure.damage(j.meta)) AS damage
    FROM tenure.suspended_job j
    WHERE j.id = ANY (ARRAY(
        SELECT s.id FROM tenure.suspended_job s
        WHERE s.resume_at <= (SELECT clock_timestamp())
          AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
        ORDER BY s.created_at, s.id
        LIMIT $1
        FOR UPDATE SKIP LOCKED)))
UPDATE tenure.suspended_job s SET resume_at = clock_timestamp() + interval '10 minutes'
FROM due WHERE s.id = due.id AND due.damage IS NOT NULL
RETURNING s.id, s.tenant_id, due.damage;
