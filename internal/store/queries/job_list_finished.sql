-- Finished jobs, in the order of lists: the last ones that were made first. $1 to $9 are those of job_list.sql. Their
-- indexes know when jobs finished, which none does before it is made: so only those that were made $10
-- ms at most before the place that the list goes on behind, or before now, are looked for; null: all. Those of $11 ms
-- were looked for already.
SELECT f.id, f.outcome AS state, f.tenant_id, f.queue, f.kind,
       f.priority, f.attempt, NULL::smallint AS max_attempts, f.losses, f.created_at, f.finished_at AS at,
       f.node, CASE f.outcome WHEN 'business_error' THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = f.id ORDER BY e.at DESC LIMIT 1) END AS error,
       tenure.legible(f.payload, true) AS payload, tenure.legible(f.meta, true) AS meta, f.unique_key, f.correlation_id, true AS handled, f.started_at AS began, NULL::timestamptz AS resume_at,
       NULL::text AS exclusive_key, NULL::integer AS timeout_ms, false AS external, f.created_at AS listed_at
FROM tenure.completed_job f
WHERE ($1::text IS NULL OR f.outcome = $1)
  AND ($2::text IS NULL OR f.tenant_id = $2) AND ($3::text IS NULL OR f.kind = $3)
  AND ($4::text IS NULL OR f.queue = $4) AND ($5::bigint[] IS NULL OR f.id = ANY ($5)) AND ($7::text IS NULL OR f.correlation_id = $7)
  AND ($8::timestamptz IS NULL OR (f.created_at <= $8 AND (f.created_at, f.id) < ($8, $9::bigint)))
  AND ($10::bigint IS NULL OR (f.finished_at >= coalesce($8, now()) - $10 * interval '1 ms' AND f.created_at >= coalesce($8, now()) - $10 * interval '1 ms'))
  AND ($11::bigint IS NULL OR f.created_at < coalesce($8, now()) - $11 * interval '1 ms')
ORDER BY f.created_at DESC, f.id DESC
LIMIT $6;
