-- Puts off, by ten minutes, the jobs of a topic of external workers that cannot be read, among those of each tenant that may
-- be locked next: acquiring them would fail. Those whose row somebody has locked are left alone.
-- $1 topic, $2 how many of each tenant, $3 tenants, or null: all.
WITH RECURSIVE named AS (
    SELECT (SELECT min(j.tenant_id) FROM tenure.external_job j WHERE j.kind = $1 AND j.lock_expires_at IS NULL AND j.due_at IS NULL) AS tenant_id
    UNION ALL
    SELECT (SELECT min(j.tenant_id) FROM tenure.external_job j
            WHERE j.kind = $1 AND j.lock_expires_at IS NULL AND j.due_at IS NULL AND j.tenant_id > named.tenant_id)
    FROM named WHERE named.tenant_id IS NOT NULL),
first AS MATERIALIZED (
    SELECT j.id, coalesce(tenure.damage(j.payload), tenure.damage(j.meta)) AS damage
    FROM named
    CROSS JOIN LATERAL tenure.external_next(named.tenant_id, $1, $2, true) AS next (id)
    JOIN tenure.external_job j ON j.id = next.id
    WHERE $3::text[] IS NULL OR named.tenant_id = ANY ($3))
UPDATE tenure.external_job x SET due_at = clock_timestamp() + interval '10 minutes'
FROM first WHERE x.id = first.id AND first.damage IS NOT NULL
RETURNING x.id, x.tenant_id, first.damage;
