-- The tenants that may have only so many jobs in flight at a time, with those they have.
SELECT t.tenant_id, greatest(t.max_running, 1) AS most, coalesce(flying.ids, '{}') AS ids, coalesce(flying.turns, '{}') AS turns
FROM tenure.tenant t
CROSS JOIN LATERAL (
    SELECT array_agg(j.id) AS ids, array_agg(j.turn) AS turns
    FROM tenure.claim c
    CROSS JOIN unnest(c.job_ids) AS run (id)
    JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn AND j.tenant_id = t.tenant_id) flying
WHERE t.max_running IS NOT NULL;
