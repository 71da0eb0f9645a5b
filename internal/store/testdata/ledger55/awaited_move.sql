-- The next $2 rows of what the jobs of a tenant await that has left, with those jobs, as JSON, and a lock
-- on them; behind the last of these the jobs that have none left, and then ends that were not taken in.
-- $1 tenant.
WITH awaits AS MATERIALIZED (
    SELECT a.awaiting_id, to_jsonb(a) AS line
    FROM tenure.awaiting w JOIN tenure.awaited a ON a.awaiting_id = w.job_id
    WHERE w.tenant_id = $1 LIMIT $2 FOR UPDATE OF a),
awaiting AS MATERIALIZED (
    SELECT to_jsonb(w) AS line FROM tenure.awaiting w
    WHERE w.job_id = ANY (ARRAY(SELECT DISTINCT awaiting_id FROM awaits)) FOR UPDATE),
bare AS MATERIALIZED (
    SELECT to_jsonb(w) AS line FROM tenure.awaiting w
    WHERE w.tenant_id = $1 AND NOT EXISTS (SELECT FROM awaits) LIMIT $2 FOR UPDATE),
ends AS MATERIALIZED (
    SELECT to_jsonb(e) AS line FROM tenure.awaited_end e
    WHERE e.tenant_id = $1 AND NOT EXISTS (SELECT FROM awaits) AND NOT EXISTS (SELECT FROM bare) LIMIT $2 FOR UPDATE)
SELECT jsonb_build_object('awaiting', line)::text FROM awaiting
UNION ALL SELECT jsonb_build_object('awaiting', line)::text FROM bare
UNION ALL SELECT jsonb_build_object('awaited', line)::text FROM awaits
UNION ALL SELECT jsonb_build_object('awaited_end', line)::text FROM ends;
