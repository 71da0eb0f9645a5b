-- How many dead letters there are: up to $1 they are counted, beyond that it is Postgres' estimate, whose statistics
-- may have been lost in a crash.
SELECT CASE WHEN c.n < $1 THEN c.n
            WHEN pg_stat_get_live_tuples(t.oid) > c.n THEN pg_stat_get_live_tuples(t.oid)
            ELSE greatest(c.n, t.reltuples::bigint) END AS dead
FROM (SELECT count(*) AS n FROM (SELECT FROM tenure.dead_letter_job LIMIT $1::bigint) d) c, pg_class t
WHERE t.oid = 'tenure.dead_letter_job'::regclass;
