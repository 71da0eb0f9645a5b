-- Removes unique keys that are taken for their periods in the other pool. $1 tenant, $2 keys.
DELETE FROM tenure.unique_period WHERE tenant_id = $1 AND key = ANY ($2::text[]);
