-- Unfinished jobs of external workers. $1 tenants, $2 topic, $3 the worker that has locked them, $4 whether
-- they are locked, $5 a correlation id, $6 whether they have failed before; null: any. $7 by what they are
-- sorted, which is constant when this is planned, so that the first of all ids are read by their index,
-- $8 whether the last ones come first, $9 how many, $10 up to where those that there are are counted, $11 the
-- id of the only one.
WITH chosen AS NOT MATERIALIZED (
    SELECT * FROM tenure.external_job x
    WHERE ($1::text[] IS NULL OR x.tenant_id = ANY ($1)) AND ($2::text IS NULL OR x.kind = $2)
      AND ($3::text IS NULL OR x.locked_by = $3 AND x.lock_expires_at IS NOT NULL)
      AND ($4::boolean IS NULL OR $4 = (x.lock_expires_at IS NOT NULL))
      AND ($5::text IS NULL OR x.correlation_id = $5) AND ($6::boolean IS NULL OR $6 = (x.attempt > 0))
      AND ($11::bigint IS NULL OR x.id = $11))
SELECT {{external_shown}},
       (SELECT count(*) FROM (SELECT FROM chosen LIMIT $10) counted) AS found
FROM chosen j
ORDER BY CASE WHEN $7::text = 'created' AND NOT $8::boolean THEN j.created_at END, CASE WHEN $7::text = 'created' AND $8::boolean THEN j.created_at END DESC,
         CASE WHEN $7::text = 'tenant' AND NOT $8::boolean THEN j.tenant_id END, CASE WHEN $7::text = 'tenant' AND $8::boolean THEN j.tenant_id END DESC,
         CASE WHEN NOT $8::boolean THEN j.id END, CASE WHEN $8::boolean THEN j.id END DESC
LIMIT $9;
