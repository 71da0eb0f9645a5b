-- Adds what awaited_move.sql has read, in the pool that the tenant arrives in. An end that is added once
-- more changes nothing. $1 the lines.
WITH line AS MATERIALIZED (SELECT l.text::jsonb AS line FROM unnest($1::text[]) AS l (text)),
awaiting AS (
    INSERT INTO tenure.awaiting (job_id, tenant_id, on_failure, batch, created_at, closed_at)
    SELECT r.job_id, r.tenant_id, r.on_failure, r.batch, r.created_at, r.closed_at
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.awaiting, line.line -> 'awaiting') r
    WHERE line.line ? 'awaiting'
    ON CONFLICT DO NOTHING),
awaited AS (
    INSERT INTO tenure.awaited (awaiting_id, job_id, tenant_id, outcome)
    SELECT r.awaiting_id, r.job_id, r.tenant_id, r.outcome
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.awaited, line.line -> 'awaited') r
    WHERE line.line ? 'awaited'
    ON CONFLICT DO NOTHING)
INSERT INTO tenure.awaited_end (tenant_id, job_id, outcome, awaiting_id)
SELECT r.tenant_id, r.job_id, r.outcome, r.awaiting_id
FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.awaited_end, line.line -> 'awaited_end') r
WHERE line.line ? 'awaited_end'
ORDER BY r.id;
