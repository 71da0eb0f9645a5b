-- Makes dead letters wait to run now, with all their attempts again: those of $1 ids that still
-- have $2 turns, and whose row nobody has locked. One stays whose unique key another job has
-- taken meanwhile, and so do those of a tenant that is between two pools, when the other one may
-- have them, too. A row for each that was there, and whether it rose.
WITH dead AS (
    SELECT d.id, d.tenant_id, d.queue, d.priority, d.unique_key
    FROM tenure.dead_letter_job d JOIN unnest($1::bigint[], $2::integer[]) AS seen (id, turn) ON d.id = seen.id AND d.turn = seen.turn
    WHERE d.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    ORDER BY d.id
    FOR UPDATE OF d SKIP LOCKED),
keyed AS (
    INSERT INTO tenure.unique_job (tenant_id, key, job_id)
    SELECT tenant_id, unique_key, id FROM dead WHERE unique_key IS NOT NULL
    ON CONFLICT (tenant_id, key) DO NOTHING
    RETURNING job_id),
risen AS (
    DELETE FROM tenure.dead_letter_job d USING dead
    WHERE d.id = dead.id AND (dead.unique_key IS NULL OR dead.id IN (SELECT job_id FROM keyed))
    RETURNING d.*),
moved AS (
    INSERT INTO tenure.job ({{job}})
    SELECT {{job | turn = turn + 1 | attempt = 0 | losses = 0}}
    FROM risen WHERE origin <> 'external_job' ORDER BY id
    RETURNING id),
outside AS (
    INSERT INTO tenure.external_job ({{job}}, due_at)
    SELECT {{job | turn = turn + 1 | attempt = 0 | losses = 0}}, NULL
    FROM risen WHERE origin = 'external_job' ORDER BY id),
unasked AS (
    DELETE FROM tenure.cancel_request r USING moved WHERE r.job_id = moved.id)
SELECT tenant_id, queue, priority, id IN (SELECT id FROM risen) AS rose FROM dead;
