-- Adds a batch of finished jobs and notes which they are, as they have no key that would
-- keep them from coming twice when their removal is cut short. No row: the caller is not
-- the mover any more. $1 tenant, $2 the mover, $3 the rows as JSON, $4 ids.
WITH noted AS (
    UPDATE tenure.tenant SET arrived = $4 WHERE tenant_id = $1 AND mover = $2 RETURNING tenant_id),
added AS (
    INSERT INTO tenure.completed_job ({{job}}, finished_at, outcome, started_at, node, external)
    SELECT {{r.job | payload = coalesce(r.payload, 'null')}}, r.finished_at, r.outcome, r.started_at, r.node, r.external
    FROM noted, unnest($3::text[]) AS l (text)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.completed_job, l.text::jsonb) AS r
    RETURNING id, tenant_id, meta),
tagged AS (
    INSERT INTO tenure.job_tag (tenant_id, tag, job_id)
    SELECT DISTINCT added.tenant_id, t.tag, added.id FROM added CROSS JOIN LATERAL jsonb_array_elements_text(added.meta->'tenure:tags') AS t (tag)
    ON CONFLICT (tenant_id, tag, job_id) DO UPDATE SET gone_at = NULL)
SELECT tenant_id FROM noted;
