-- Tenants that have a timer due, but those that rest: by skipping from tenant to tenant along the
-- index. $1 the most to list.
WITH RECURSIVE own AS (
    (SELECT tenant_id FROM tenure.timer_job ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT next.tenant_id
    FROM own CROSS JOIN LATERAL (
        SELECT j.tenant_id FROM tenure.timer_job j WHERE j.tenant_id > own.tenant_id ORDER BY j.tenant_id LIMIT 1) next)
SELECT tenant_id FROM own
WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
  AND EXISTS (SELECT FROM tenure.timer_job j WHERE j.tenant_id = own.tenant_id AND j.due_at <= (SELECT clock_timestamp()))
LIMIT $1;
