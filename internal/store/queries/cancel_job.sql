-- Cancels a job wherever it stands. To be run behind removal_lock in the same
-- transaction. $1 id, $2 whether to keep it among the finished ones.
-- A claimed job gets a request; anything else unfinished ends here, with a request that
-- its last run did not heed, unless its tenant is between two pools, when the other one
-- may have it, too.
WITH elsewhere AS MATERIALIZED (
    SELECT FROM tenure.tenant t
    WHERE t.state IN ('moved', 'arriving')
      AND t.tenant_id IN (SELECT tenant_id FROM tenure.job WHERE id = $1
                          UNION ALL SELECT tenant_id FROM tenure.timer_job WHERE id = $1
                          UNION ALL SELECT tenant_id FROM tenure.suspended_job WHERE id = $1
                          UNION ALL SELECT tenant_id FROM tenure.dead_letter_job WHERE id = $1)),
claimed AS (
    SELECT j.id FROM tenure.job j JOIN tenure.claim c ON j.id = ANY (c.job_ids) AND c.turn = j.turn
    WHERE j.id = $1),
asked AS (
    INSERT INTO tenure.cancel_request (job_id) SELECT id FROM claimed ON CONFLICT DO NOTHING),
w AS (DELETE FROM tenure.job WHERE id = $1 AND NOT EXISTS (SELECT FROM claimed) AND NOT EXISTS (SELECT FROM elsewhere) RETURNING *),
t AS (DELETE FROM tenure.timer_job WHERE id = $1 AND NOT EXISTS (SELECT FROM elsewhere) RETURNING *),
s AS (DELETE FROM tenure.suspended_job WHERE id = $1 AND NOT EXISTS (SELECT FROM elsewhere) RETURNING *),
d AS (DELETE FROM tenure.dead_letter_job WHERE id = $1 AND NOT EXISTS (SELECT FROM elsewhere) RETURNING *),
gone AS (
    SELECT *, $2::boolean AS keep, NULL::timestamptz AS started_at, NULL::text AS node, nullif(origin = 'external_job', false) AS external
    FROM (SELECT {{job}}, NULL AS origin FROM w UNION ALL SELECT {{job}}, NULL FROM t
          UNION ALL SELECT {{job}}, origin FROM s UNION ALL SELECT {{job}}, origin FROM d) stood),
{{cancelled}}
SELECT (SELECT count(*) FROM gone) AS cancelled, (SELECT count(*) FROM claimed) AS running;
