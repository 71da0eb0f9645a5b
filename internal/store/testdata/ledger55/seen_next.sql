-- From when to when finished jobs are to be looked at next for whose they are, and whether there are more after those.
-- What finished in the last two minutes is looked at in any case: it may have been committed late, or the clock was
-- set back. $1 the longest time in ms.
SELECT since.at AS since, least(since.at + $1::bigint * interval '1 ms', clock.now) AS until, since.at + $1::bigint * interval '1 ms' < clock.now AS more
FROM (SELECT clock_timestamp() AS now) clock
CROSS JOIN LATERAL (
    SELECT least(coalesce(
        (SELECT s.until FROM tenure.seen_tenant s WHERE s.tenant_id = ''),
        (SELECT min(to_date(substring(c.relname FROM 'completed_job_(\d{8})$'), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC'
         FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'tenure.completed_job'::regclass AND c.relname ~ '^completed_job_\d{8}$')),
        clock.now - interval '2 minutes') AS at) since;
