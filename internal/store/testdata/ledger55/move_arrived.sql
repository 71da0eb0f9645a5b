-- The finished jobs of the last batch that arrived, as far as they still stand here, and a
-- lock on what says so. No row: the caller is not the mover. $1 tenant, $2 the mover.
SELECT ARRAY(SELECT f.id FROM tenure.completed_job f WHERE f.tenant_id = $1 AND f.id = ANY (t.arrived))
FROM tenure.tenant t WHERE t.tenant_id = $1 AND t.mover = $2
FOR UPDATE;
