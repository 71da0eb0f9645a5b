-- Puts off, by ten minutes and under the fence, the due timers that cannot be read, among those that
-- timer_fire or, of tenants, timer_share would move: what they have is copied by that, and one fails
-- all. Those whose row somebody has locked are left alone.
-- $1 session, $2 epoch, $3 the most to look at, of each tenant if there are any; $4 tenants, or null.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE {{holds}}
    FOR KEY SHARE),
due AS MATERIALIZED (
    SELECT j.id, coalesce(tenure.damage(j.payload), tenure.damage(j.meta)) AS damage
    FROM tenure.timer_job j
    WHERE EXISTS (SELECT FROM fence)
      AND j.id = ANY (CASE WHEN $4::text[] IS NULL
          THEN ARRAY(SELECT id FROM tenure.timer_job
                     WHERE due_at <= (SELECT clock_timestamp())
                       AND tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
                     ORDER BY due_at LIMIT $3
                     FOR UPDATE SKIP LOCKED)
          ELSE ARRAY(SELECT share.id FROM unnest($4) AS own (tenant_id)
                     CROSS JOIN LATERAL (
                         SELECT s.id FROM tenure.timer_job s
                         WHERE s.tenant_id = own.tenant_id AND s.due_at <= (SELECT clock_timestamp())
                           AND s.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
                         ORDER BY s.due_at LIMIT $3
                         FOR UPDATE SKIP LOCKED) share) END))
UPDATE tenure.timer_job t SET due_at = clock_timestamp() + interval '10 minutes'
FROM due WHERE t.id = due.id AND due.damage IS NOT NULL
RETURNING t.id, t.tenant_id, due.damage;
