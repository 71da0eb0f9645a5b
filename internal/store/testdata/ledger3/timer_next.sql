-- How long until the next timer is due, in ms by the database's clock; no row: none.
-- Those of tenants that rest do not count, or they would be looked at all the time.
SELECT greatest(0, ceil(extract(epoch FROM due_at - clock_timestamp()) * 1000))::bigint
FROM tenure.timer_job
WHERE tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state <> 'active' OR t.frozen)
ORDER BY due_at
LIMIT 1;
