-- As finish_done, with $3 how long each of the runs took.
WITH gone AS (
    DELETE FROM tenure.job j USING unnest($1::bigint[], $3::bigint[]) AS ran (id, took_us)
    WHERE j.id = ran.id AND j.turn = $2
    RETURNING j.*, ran.took_us)
INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
    tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id, started_at, node)
SELECT id, created_at, now(), turn, priority, attempt + 1, losses,
    tenant_id, queue, kind, 'done', payload, meta, unique_key, correlation_id, now() - took_us * interval '1 microsecond', $4
FROM gone;
