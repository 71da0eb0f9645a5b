-- timer_fire for some tenants, each of which has a share, the first that were due.
-- $1 session, $2 epoch, $3 the most to move of each tenant, $4 tenants.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE {{holds}}
    FOR KEY SHARE),
due AS (
    DELETE FROM tenure.timer_job
    WHERE EXISTS (SELECT FROM fence)
      AND ctid = ANY (ARRAY(SELECT share.place FROM unnest($4::text[]) AS own (tenant_id)
                      CROSS JOIN LATERAL (
                          SELECT j.ctid AS place FROM tenure.timer_job j
                          WHERE j.tenant_id = own.tenant_id AND j.due_at <= (SELECT clock_timestamp())
                            AND j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
                          ORDER BY j.due_at LIMIT $3
                          FOR UPDATE SKIP LOCKED) share))
    RETURNING *),
fired AS (
    INSERT INTO tenure.job ({{job}})
    SELECT {{job | turn = turn + 1}} FROM due ORDER BY due_at
    RETURNING queue, tenant_id, priority)
SELECT queue, tenant_id, priority, count(*) FROM fired GROUP BY queue, tenant_id, priority;
