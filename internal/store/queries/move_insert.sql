-- Adds a batch of a tenant's jobs to the table $1 that they stood in, in order, with
-- their unique keys and tags. Those that arrived before stay as they are. Returns the new ones.
-- $2 the rows as JSON. A payload of null is JSON's null. A job that an external worker has locked keeps
-- its lock, and its turn, by which the worker ends it.
WITH line AS MATERIALIZED (
    SELECT n, text::jsonb AS row FROM unnest($2::text[]) WITH ORDINALITY AS l (text, n)),
in_job AS (
    INSERT INTO tenure.job ({{job}})
    SELECT {{r.job | turn = r.turn + 1 | payload = coalesce(r.payload, 'null')}}
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.job, line.row) AS r
    WHERE $1 = 'job'
    ORDER BY line.n
    ON CONFLICT (id) DO NOTHING
    RETURNING id, tenant_id, unique_key, meta),
in_timer_job AS (
    INSERT INTO tenure.timer_job ({{job}}, due_at, repeat, end_at)
    SELECT {{r.job | turn = r.turn + 1 | payload = coalesce(r.payload, 'null')}}, r.due_at, r.repeat, r.end_at
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.timer_job, line.row) AS r
    WHERE $1 = 'timer_job'
    ORDER BY line.n
    ON CONFLICT (id) DO NOTHING
    RETURNING id, tenant_id, unique_key, meta),
in_external_job AS (
    INSERT INTO tenure.external_job ({{job}}, locked_by, lock_expires_at, acquired_at, due_at)
    SELECT {{r.job | turn = r.turn + (r.locked_by IS NULL)::integer | payload = coalesce(r.payload, 'null')}}, r.locked_by, r.lock_expires_at, r.acquired_at, r.due_at
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.external_job, line.row) AS r
    WHERE $1 = 'external_job'
    ORDER BY line.n
    ON CONFLICT (id) DO NOTHING
    RETURNING id, tenant_id, unique_key, meta),
in_suspended_job AS (
    INSERT INTO tenure.suspended_job ({{job}}, origin, due_at, repeat, end_at, suspended_at, resume_at)
    SELECT {{r.job | turn = r.turn + 1 | payload = coalesce(r.payload, 'null')}}, r.origin, r.due_at, r.repeat, r.end_at, r.suspended_at, r.resume_at
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.suspended_job, line.row) AS r
    WHERE $1 = 'suspended_job'
    ORDER BY line.n
    ON CONFLICT (id) DO NOTHING
    RETURNING id, tenant_id, unique_key, meta),
in_dead_letter_job AS (
    INSERT INTO tenure.dead_letter_job ({{job}}, origin, error, died_at)
    SELECT {{r.job | turn = r.turn + 1 | payload = coalesce(r.payload, 'null')}}, r.origin, r.error, r.died_at
    FROM line CROSS JOIN LATERAL jsonb_populate_record(NULL::tenure.dead_letter_job, line.row) AS r
    WHERE $1 = 'dead_letter_job'
    ORDER BY line.n
    ON CONFLICT (id) DO NOTHING
    RETURNING id, tenant_id, unique_key, meta),
living AS (
    SELECT * FROM in_job
    UNION ALL SELECT * FROM in_timer_job
    UNION ALL SELECT * FROM in_external_job
    UNION ALL SELECT * FROM in_suspended_job),
keyed AS (
    INSERT INTO tenure.unique_job (tenant_id, key, job_id)
    SELECT tenant_id, unique_key, id FROM living WHERE unique_key IS NOT NULL
    ON CONFLICT DO NOTHING),
arrived AS (
    SELECT * FROM living
    UNION ALL SELECT * FROM in_dead_letter_job),
tagged AS (
    INSERT INTO tenure.job_tag (tenant_id, tag, job_id)
    SELECT DISTINCT arrived.tenant_id, t.tag, arrived.id FROM arrived CROSS JOIN LATERAL jsonb_array_elements_text(arrived.meta->'tenure:tags') AS t (tag)
    ON CONFLICT (tenant_id, tag, job_id) DO UPDATE SET gone_at = NULL)
SELECT id FROM arrived;
