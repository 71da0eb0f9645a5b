-- What keeps ends of runs from being written: those of some jobs that stand with their turn
-- and of which somebody has locked the row, the unique key or the request to cancel them;
-- and those of some claims of a session that somebody has locked (claim is true). The others
-- are locked for a moment by this statement, which waits for nobody. $1 ids, $2 turns,
-- $3 session, $4 claims.
WITH standing AS MATERIALIZED (
    SELECT j.id, j.tenant_id, j.unique_key FROM unnest($1::bigint[], $2::integer[]) AS said (id, turn)
    JOIN tenure.job j ON j.id = said.id AND j.turn = said.turn),
free_job AS MATERIALIZED (
    SELECT j.id FROM standing JOIN tenure.job j USING (id)
    FOR UPDATE OF j SKIP LOCKED),
free_key AS MATERIALIZED (
    SELECT u.job_id FROM standing s JOIN tenure.unique_job u ON u.tenant_id = s.tenant_id AND u.key = s.unique_key AND u.job_id = s.id
    FOR UPDATE OF u SKIP LOCKED),
free_request AS MATERIALIZED (
    SELECT r.job_id FROM standing s JOIN tenure.cancel_request r ON r.job_id = s.id
    FOR UPDATE OF r SKIP LOCKED),
free_claim AS MATERIALIZED (
    SELECT c.id FROM tenure.claim c WHERE c.session_id = $3 AND c.id = ANY ($4::bigint[])
    FOR UPDATE OF c SKIP LOCKED)
SELECT s.id, false AS claim FROM standing s
WHERE s.id NOT IN (SELECT id FROM free_job)
   OR s.id NOT IN (SELECT job_id FROM free_key)
      AND EXISTS (SELECT FROM tenure.unique_job u WHERE u.tenant_id = s.tenant_id AND u.key = s.unique_key AND u.job_id = s.id)
   OR s.id NOT IN (SELECT job_id FROM free_request)
      AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = s.id)
UNION ALL
SELECT c.id, true FROM tenure.claim c
WHERE c.session_id = $3 AND c.id = ANY ($4::bigint[]) AND c.id NOT IN (SELECT id FROM free_claim);
