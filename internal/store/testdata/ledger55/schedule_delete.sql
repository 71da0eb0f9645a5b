-- Removes a schedule of an origin of $3, if its tenant is here; with one for every tenant, whose
-- tenant is empty, what tenants have of it. What it has added stays. $1 tenant, $2 name.
WITH gone AS (
    DELETE FROM tenure.schedule s
    WHERE s.tenant_id = $1 AND s.name = $2 AND s.origin = ANY ($3::text[])
      AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $1 AND t.state <> 'active')
    RETURNING s.name),
copies AS (
    DELETE FROM tenure.schedule s USING gone
    WHERE $1 = '' AND s.tenant_id <> '' AND s.name = gone.name AND s.origin = 'every')
SELECT name FROM gone;
