-- Finished jobs, in the order of lists: the last ones that were made first. $1 to $9 are those of job_list.sql. Their
-- indexes know when jobs finished, which none does before it is made: so only those that were made at $10 or later
-- are looked for, and before $11, as the others were already; null: all. One that was made after it finished, as a
-- clock was set back or somebody has set it so, counts as made when it finished. $12 says that they have tags, which an
-- index leads to by their ids. What few have is found by the index that knows of what tenants, kinds, queues and
-- outcomes there are none in some pages; the condition on finished_at, be it true of all, is what has the planner see how few
-- of them it leaves.
SELECT {{f.listed
    | payload = tenure.legible(f.payload, true) | meta = tenure.legible(f.meta, true)
    | state = f.outcome | at = f.finished_at | handled = true | began = f.started_at | resume_at = NULL::timestamptz | external = coalesce(f.external, false)
    | error = CASE f.outcome WHEN 'done' THEN NULL WHEN 'business_error' THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = f.id ORDER BY e.attempt BETWEEN f.attempt AND f.attempt + 1 DESC, e.at DESC LIMIT 1)
          ELSE (SELECT e.error FROM tenure.job_error e WHERE e.job_id = f.id AND e.at = f.finished_at LIMIT 1) END
    | listed_at = greatest(least(f.created_at, f.finished_at, '9999-12-31 23:59:59Z'), '1970-01-01Z') AS listed_at}}
FROM tenure.completed_job f
WHERE ($1::text IS NULL OR f.outcome = $1)
  AND ($2::text IS NULL OR f.tenant_id = $2) AND ($3::text IS NULL OR f.kind = $3)
  AND ($4::text IS NULL OR f.queue = $4) AND ($5::bigint[] IS NULL OR f.id = ANY ($5)) AND ($7::text IS NULL OR f.correlation_id = $7)
  AND ($8::timestamptz IS NULL OR (greatest(least(f.created_at, f.finished_at, '9999-12-31 23:59:59Z'), '1970-01-01Z'), f.id) < ($8, $9::bigint))
  AND f.finished_at >= coalesce($10::timestamptz, '-infinity') AND ($10 IS NULL OR f.created_at >= $10)
  AND ($11::timestamptz IS NULL OR f.created_at < $11 OR f.finished_at < $11)
  AND ($12::boolean IS NULL OR f.meta IS NOT NULL)
ORDER BY listed_at DESC, id DESC
LIMIT $6;
