-- Adds the job of a schedule now, whatever its times are; that is its last job then. No row: there
-- is none whose tenant is here. What it was fired for is not forgotten if the clock was set back
-- since. $1 tenant, $2 name; what its kind gives, of one that is locked: $3 the queue, or null, $4 the exclusive key,
-- empty for none, or null if that is not known here, $5 the payload as it is to be, or null: as it is.
WITH chosen AS MATERIALIZED (
    SELECT s.*, clock_timestamp() AS at, coalesce($3::text, {{scheduled_queue}}, s.queue) AS into_queue, coalesce($4::text, s.exclusive_key) AS key, coalesce($5::text::jsonb, s.payload) AS filled
    FROM tenure.schedule s
    WHERE s.tenant_id = $1 AND s.name = $2
      AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $1 AND t.state <> 'active')
    FOR UPDATE),
run AS MATERIALIZED (
    SELECT chosen.*, nextval('tenure.job_id') AS id FROM chosen),
noted AS (
    UPDATE tenure.schedule s SET last_at = greatest(s.last_at, run.at), last_job = run.id, queue = run.into_queue, exclusive_key = nullif(run.key, '')
    FROM run WHERE s.tenant_id = run.tenant_id AND s.name = run.name),
inside AS (
    INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, meta, priority, max_attempts, exclusive_key)
    SELECT id, tenant_id, into_queue, kind, filled,
           coalesce(meta, '{}') || jsonb_build_object('schedule', name, 'scheduled_at', at), priority, max_attempts, nullif(key, '')
    FROM run WHERE NOT external),
outside AS (
    INSERT INTO tenure.external_job (id, tenant_id, queue, kind, payload, meta, priority, max_attempts, exclusive_key)
    SELECT id, tenant_id, into_queue, kind, filled,
           coalesce(meta, '{}') || jsonb_build_object('schedule', name, 'scheduled_at', at), priority, max_attempts, nullif(key, '')
    FROM run WHERE external)
SELECT id, into_queue, tenant_id, priority, external FROM run;
