-- How long, in ms, the last first runs took that ended in the last $1 ms, and how long before each its
-- job had been added. It reads the last pages of today's finished jobs only, at most 16 of each
-- partition that today's are in: they are where the newest are, as rows are only added there.
SELECT (extract(epoch FROM f.finished_at - f.started_at) * 1000)::double precision AS ran,
       (extract(epoch FROM f.started_at - f.created_at) * 1000)::double precision AS waited
FROM tenure.completed_job f
WHERE f.ctid >= (SELECT format('(%s,0)', greatest(0, pg_relation_size(coalesce(
                     to_regclass('tenure.completed_job_' || to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')),
                     'tenure.completed_job_rest'::regclass)) / current_setting('block_size')::bigint - 16))::tid)
  AND f.finished_at >= date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
  AND f.finished_at > clock_timestamp() - $1::bigint * interval '1 ms'
  AND isfinite(f.started_at) AND isfinite(f.created_at) AND isfinite(f.finished_at) AND f.attempt = 1
LIMIT 500;
