-- Reads on in one of the other tables, $2, the jobs of a tenant that has left, and locks
-- what it reads. $1 tenant, $3 the id to read after, $4 how many.
WITH timer_row AS (
    SELECT j.id, to_jsonb(j)::text AS line FROM tenure.timer_job j
    WHERE $2 = 'timer_job' AND j.tenant_id = $1 AND j.id > $3
    ORDER BY j.id LIMIT $4 FOR UPDATE),
external_row AS (
    SELECT j.id, to_jsonb(j)::text AS line FROM tenure.external_job j
    WHERE $2 = 'external_job' AND j.tenant_id = $1 AND j.id > $3
    ORDER BY j.id LIMIT $4 FOR UPDATE),
suspended_row AS (
    SELECT j.id, to_jsonb(j)::text AS line FROM tenure.suspended_job j
    WHERE $2 = 'suspended_job' AND j.tenant_id = $1 AND j.id > $3
    ORDER BY j.id LIMIT $4 FOR UPDATE),
dead_letter_row AS (
    SELECT j.id, to_jsonb(j)::text AS line FROM tenure.dead_letter_job j
    WHERE $2 = 'dead_letter_job' AND j.tenant_id = $1 AND j.id > $3
    ORDER BY j.id LIMIT $4 FOR UPDATE)
SELECT id AS cursor, id, line FROM timer_row
UNION ALL
SELECT id AS cursor, id, line FROM external_row
UNION ALL
SELECT id AS cursor, id, line FROM suspended_row
UNION ALL
SELECT id AS cursor, id, line FROM dead_letter_row
ORDER BY cursor;
