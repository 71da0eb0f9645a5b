-- Moves due timers to the waiting jobs, under the fence, and says into which lanes.
-- Those of tenants that rest stay, and so do those whose row somebody has locked, which
-- is not waited for.
-- The time is asked for once: compared with a volatile function every timer of the future would be read.
-- $1 session, $2 epoch, $3 the most to move.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE {{holds}}
    FOR KEY SHARE),
due AS (
    DELETE FROM tenure.timer_job
    WHERE EXISTS (SELECT FROM fence)
      AND id = ANY (ARRAY(SELECT id FROM tenure.timer_job
                      WHERE due_at <= (SELECT clock_timestamp())
                        AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
                      ORDER BY due_at LIMIT $3
                      FOR UPDATE SKIP LOCKED))
    RETURNING *),
fired AS (
    INSERT INTO tenure.job ({{job}})
    SELECT {{job | turn = turn + 1}} FROM due ORDER BY due_at
    RETURNING queue, tenant_id, priority)
SELECT queue, tenant_id, priority, count(*) FROM fired GROUP BY queue, tenant_id, priority;
