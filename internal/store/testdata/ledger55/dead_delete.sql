-- Deletes dead letters, with what is kept of their runs: those of $1 ids that still have $2
-- turns, and whose row nobody has locked, but for those of a tenant that is between two pools,
-- when the other one may have them, too. To a job that awaits one of them it was cancelled.
WITH gone AS (
    DELETE FROM tenure.dead_letter_job
    WHERE id = ANY (ARRAY(
        SELECT d.id
        FROM tenure.dead_letter_job d JOIN unnest($1::bigint[], $2::integer[]) AS seen (id, turn) ON d.id = seen.id AND d.turn = seen.turn
        WHERE d.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
        FOR UPDATE OF d SKIP LOCKED))
    RETURNING id),
forgotten AS (
    DELETE FROM tenure.job_error e USING gone WHERE e.job_id = gone.id),
silenced AS (
    DELETE FROM tenure.job_report r USING gone WHERE r.job_id = gone.id),
unasked AS (
    DELETE FROM tenure.cancel_request r USING gone WHERE r.job_id = gone.id)
SELECT (SELECT count(*) FROM gone) FROM tenure.note_ends(ARRAY(SELECT id FROM gone), 'cancelled');
