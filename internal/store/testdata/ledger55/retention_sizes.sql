-- How many bytes of finished jobs stand in the partitions of today and of yesterday, in UTC, as far as they are there.
SELECT d.day, pg_relation_size(d.partition)
FROM (SELECT day, to_regclass('tenure.completed_job_' || to_char(day, 'YYYYMMDD'))
      FROM generate_series(0, 1) ago, LATERAL (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - ago) AS t (day)) AS d (day, partition)
WHERE d.partition IS NOT NULL;
