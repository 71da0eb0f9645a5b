-- Ends waiting jobs that somebody wants cancelled, under the fence of a claim: nobody has claimed
-- them since, as that is for the caller alone to do. No row is waited for: what is left now is
-- found again. Those stay of a tenant that is between two pools, when the other one may have
-- them, too. fence_stands is 0 when the lock is lost, or somebody took waiting jobs away.
-- $1 session, $2 epoch, $3 removals at the time of reading, $4 ids, $5 their turns,
-- $6 whether to keep them.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock
    WHERE {{holds}} AND removals = $3
    FOR KEY SHARE),
free AS MATERIALIZED (
    SELECT j.id
    FROM unnest($4::bigint[], $5::integer[]) AS said (id, turn)
    JOIN tenure.job j ON j.id = said.id AND j.turn = said.turn
    JOIN tenure.cancel_request r ON r.job_id = j.id
    WHERE EXISTS (SELECT FROM fence)
      AND j.tenant_id NOT IN (SELECT t.tenant_id FROM tenure.tenant t WHERE t.state IN ('moved', 'arriving'))
    FOR UPDATE OF j, r SKIP LOCKED),
gone AS (
    DELETE FROM tenure.job j USING free WHERE j.id = free.id
    RETURNING j.*, $6::boolean AS keep, NULL::timestamptz AS started_at, NULL::text AS node, NULL::boolean AS external),
{{cancelled}}
SELECT (SELECT count(*) FROM fence) AS fence_stands, (SELECT count(*) FROM gone) AS cancelled
FROM tenure.note_ends(ARRAY(SELECT id FROM gone), 'cancelled');
