-- Makes the caller the one who works on a move; no row: the tenant is not in this state.
-- $1 tenant, $2 state, $3 the mover.
WITH known AS (
    UPDATE tenure.tenant SET mover = $3 WHERE tenant_id = $1 AND state = $2 RETURNING tenant_id),
new AS (
    INSERT INTO tenure.tenant (tenant_id, mover)
    SELECT $1, $3 WHERE $2 = 'active' AND NOT EXISTS (SELECT FROM tenure.tenant WHERE tenant_id = $1)
    ON CONFLICT DO NOTHING
    RETURNING tenant_id)
SELECT tenant_id FROM known UNION ALL SELECT tenant_id FROM new;
