-- How many dead letters there are: up to $1 they are counted, beyond that it is Postgres' estimate, whose statistics
-- may have been lost in a crash; and so it is where the table is large, as most of it may be what was deleted.
SELECT CASE WHEN c.n < $1 THEN c.n
            WHEN pg_stat_get_live_tuples(t.oid) > coalesce(c.n, 0) THEN pg_stat_get_live_tuples(t.oid)
            ELSE greatest(c.n, t.reltuples::bigint, 0) END AS dead
FROM pg_class t
CROSS JOIN LATERAL (SELECT CASE WHEN pg_relation_size(t.oid) < 64 * 1024 * 1024
                                THEN (SELECT count(*) FROM (SELECT FROM tenure.dead_letter_job LIMIT $1::bigint) d) END AS n) c
WHERE t.oid = 'tenure.dead_letter_job'::regclass;
