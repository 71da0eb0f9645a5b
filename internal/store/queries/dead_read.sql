-- Reads on in the dead letters, by id, and shows those that are chosen, with the beginning of
-- their errors. $1 the id to read after, $2 how many to look at, $3 tenant or null, $4 kind or
-- null, $5 a text in the error, in lower case, or null, $6 died before or null, $7 how much of an error to
-- show, $8 whether those count as having died before, too, whose time is still to come, as of a clock that ran ahead.
-- $9 tag or null, $10 correlation id or null. One more row, of no kind, has the last id that was looked at, null behind the last one,
-- and the time now.
WITH page AS MATERIALIZED (
    SELECT id, turn, kind, tenant_id, error, died_at, correlation_id FROM tenure.dead_letter_job WHERE id > $1 ORDER BY id LIMIT $2)
SELECT id, turn, kind, left(error, $7) AS error, died_at
FROM page
WHERE ($3::text IS NULL OR tenant_id = $3) AND ($4::text IS NULL OR kind = $4)
  AND ($5::text IS NULL OR strpos(lower(error), $5) > 0) AND ($6::timestamptz IS NULL OR died_at < $6 OR $8::boolean AND died_at > clock_timestamp())
  AND ($9::text IS NULL OR EXISTS (SELECT FROM tenure.job_tag g WHERE g.tenant_id = page.tenant_id AND g.tag = $9 AND g.job_id = page.id))
  AND ($10::text IS NULL OR correlation_id = $10)
UNION ALL
SELECT max(id), NULL, NULL, NULL, clock_timestamp() FROM page;
