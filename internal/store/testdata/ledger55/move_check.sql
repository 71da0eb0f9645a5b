-- How many of a batch stand in the table $1. An id that somebody else's job has does not
-- count. $2 the rows as JSON.
WITH line AS (
    SELECT r.id, r.tenant_id, r.created_at
    FROM unnest($2::text[]) AS l (text)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.job, l.text::jsonb) AS r)
SELECT (SELECT count(*) FROM line JOIN tenure.job j USING (id, tenant_id, created_at) WHERE $1 = 'job')
     + (SELECT count(*) FROM line JOIN tenure.timer_job j USING (id, tenant_id, created_at) WHERE $1 = 'timer_job')
     + (SELECT count(*) FROM line JOIN tenure.external_job j USING (id, tenant_id, created_at) WHERE $1 = 'external_job')
     + (SELECT count(*) FROM line JOIN tenure.suspended_job j USING (id, tenant_id, created_at) WHERE $1 = 'suspended_job')
     + (SELECT count(*) FROM line JOIN tenure.dead_letter_job j USING (id, tenant_id, created_at) WHERE $1 = 'dead_letter_job');
