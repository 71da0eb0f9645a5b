-- First statement of every batch in the pool that a tenant arrives in: nobody can let
-- its jobs run until the batch has committed. No row: another mover goes on with it.
-- $1 tenant, $2 the mover.
SELECT tenant_id FROM tenure.tenant WHERE tenant_id = $1 AND state = 'arriving' AND mover = $2 FOR UPDATE;
