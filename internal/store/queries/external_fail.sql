-- Notes that external workers failed with jobs: each is tried again later, or is a dead letter.
-- $1 ids, $2 turns, $3 workers, $4 errors, $5 stacks, or null, $6 in how many ms each is tried
-- again, or null: as $9 says, an entry for each attempt, $7 how often it is, or null: until its attempts are used up, which are $8 unless it has a
-- number of its own. A row for each whose lock was the caller's: its id, and whether it is dead.
WITH said AS MATERIALIZED (
    SELECT j.id, j.turn, said.error, said.stack, coalesce(said.delay, ($9::bigint[])[least(j.attempt + 1, cardinality($9::bigint[]))]) AS delay, j.attempt + 1 AS attempt,
           least(coalesce(j.attempt + 1 + said.retries, j.max_attempts, $8::integer), 1000) AS most
    FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::integer[]) AS said (id, turn, worker, error, stack, delay, retries)
    JOIN tenure.external_job j ON j.id = said.id AND j.turn = said.turn AND j.locked_by = said.worker
    WHERE j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    ORDER BY j.id
    FOR UPDATE OF j),
noted AS (
    INSERT INTO tenure.job_error (job_id, attempt, node, error, stack)
    SELECT j.id, said.attempt, j.locked_by, said.error, said.stack FROM said JOIN tenure.external_job j ON j.id = said.id),
again AS (
    UPDATE tenure.external_job j
    SET turn = j.turn + 1, attempt = said.attempt, locked_by = NULL, lock_expires_at = NULL, acquired_at = NULL,
        max_attempts = CASE WHEN said.most <> $8::integer OR j.max_attempts IS NOT NULL THEN said.most END,
        due_at = clock_timestamp() + said.delay * interval '1 ms'
    FROM said WHERE j.id = said.id AND said.attempt < said.most),
gone AS (
    DELETE FROM tenure.external_job j USING said
    WHERE j.id = said.id AND said.attempt >= said.most
    RETURNING j.*, said.error, said.attempt AS attempts),
ended AS MATERIALIZED (SELECT id, tenant_id, unique_key FROM gone), -- whole rows are copied for USING
freed AS (
    DELETE FROM tenure.unique_job u USING ended
    WHERE u.tenant_id = ended.tenant_id AND u.key = ended.unique_key AND u.job_id = ended.id),
dead AS (
    INSERT INTO tenure.dead_letter_job ({{job}}, origin, error)
    SELECT {{job legible | turn = turn + 1 | attempt = attempts}}, 'external_job', error FROM gone)
SELECT id, attempt >= most AS dead FROM said;
