-- What operators have done, the last of it first. $1 tenant or null, $2 who or null, $3 action or null, or its part before or behind the
-- dot, $4 job or null, $5 and $6 the time and the id that the list goes on behind, or null, $7 how many, $8 subject or null.
-- Of a job that is also what was done to a selection that it was in, and, as "chosen", to jobs that a filter chose, if that
-- would choose it, but for its group and state, it was there before, and had not ended: whether it was among them nobody has noted. Of one that is
-- gone nothing is known that a filter could choose it by.
WITH job AS MATERIALIZED (
    SELECT id, tenant_id, kind, queue, correlation_id, created_at, NULL::timestamptz AS ended_at, NULL::text AS outcome FROM tenure.job WHERE id = $4::bigint
    UNION ALL SELECT id, tenant_id, kind, queue, correlation_id, created_at, NULL, NULL FROM tenure.timer_job WHERE id = $4
    UNION ALL SELECT id, tenant_id, kind, queue, correlation_id, created_at, NULL, NULL FROM tenure.external_job WHERE id = $4
    UNION ALL SELECT id, tenant_id, kind, queue, correlation_id, created_at, NULL, NULL FROM tenure.suspended_job WHERE id = $4
    UNION ALL SELECT id, tenant_id, kind, queue, correlation_id, created_at, NULL, 'dead' FROM tenure.dead_letter_job WHERE id = $4
    UNION ALL SELECT id, tenant_id, kind, queue, correlation_id, created_at, finished_at, outcome FROM tenure.completed_job WHERE id = $4)
SELECT a.id, a.at, a.who, a.action, coalesce(a.tenant_id, ''), coalesce(a.job_id, 0), coalesce(a.subject, ''), a.detail, of.chosen
FROM tenure.audit a
CROSS JOIN LATERAL (
    SELECT $4 IS NOT NULL AND a.job_id IS NULL AND a.detail->'ids' IS NULL AND coalesce(a.detail->>'stage', '') <> 'ended' AND EXISTS (
        SELECT FROM job j
        WHERE j.created_at < coalesce((a.detail->>'before')::timestamptz, a.at) AND (j.ended_at IS NULL OR j.ended_at > a.at)
          AND j.tenant_id = coalesce(a.tenant_id, j.tenant_id) AND j.kind = coalesce(a.detail->>'kind', j.kind)
          AND CASE split_part(a.action, '.', 1)
              WHEN 'jobs' THEN (a.action <> 'jobs.cancel' OR j.outcome IS NULL OR j.outcome = 'cancelled')
                  AND j.queue = coalesce(a.detail->>'queue', j.queue)
                  AND (a.detail->>'correlation_id' IS NULL OR j.correlation_id = a.detail->>'correlation_id')
                  AND (a.detail->>'tag' IS NULL OR EXISTS (SELECT FROM tenure.job_tag g WHERE g.job_id = j.id AND g.tenant_id = j.tenant_id AND g.tag = a.detail->>'tag'))
              WHEN 'dead_letters' THEN j.outcome = 'dead' AND a.detail->>'error' IS NULL OR EXISTS (
                  SELECT FROM tenure.job_error e WHERE e.job_id = j.id AND e.at < a.at AND strpos(lower(e.error), lower(coalesce(a.detail->>'error', ''))) > 0)
              ELSE false END) AS chosen) of
WHERE ($1::text IS NULL OR a.tenant_id = $1) AND ($8::text IS NULL OR a.subject = $8) AND ($2::text IS NULL OR a.who = $2)
  AND ($3::text IS NULL OR a.action = $3 OR $3 = ANY (string_to_array(a.action, '.')))
  AND ($4 IS NULL OR a.job_id = $4 OR a.detail->'ids' @> to_jsonb($4::bigint::text) OR of.chosen)
  AND ($4 IS NULL OR a.at >= coalesce((SELECT created_at FROM job ORDER BY created_at LIMIT 1), '-infinity'))
  AND ($5::timestamptz IS NULL OR (a.at, a.id) < ($5, $6::bigint))
ORDER BY a.at DESC, a.id DESC
LIMIT $7;
