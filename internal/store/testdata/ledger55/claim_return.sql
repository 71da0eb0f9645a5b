-- Gives jobs of a session back that never started: they leave their claim and are
-- waiting again, with the same turn and nothing charged.
-- $1 session, $2 claim ids, $3 job ids, pairwise.
WITH unstarted AS (
    SELECT claim_id, array_agg(job_id) AS job_ids
    FROM unnest($2::bigint[], $3::bigint[]) AS u (claim_id, job_id)
    GROUP BY claim_id)
UPDATE tenure.claim c
SET job_ids = ARRAY(SELECT id FROM unnest(c.job_ids) AS id WHERE id <> ALL (u.job_ids))
FROM unstarted u
WHERE c.id = u.claim_id AND c.session_id = $1;
