-- How many pages the jobs that wait take, with those that are gone and were not replaced; $1 those of workers outside the
-- cluster.
SELECT pg_relation_size(CASE WHEN $1::boolean THEN 'tenure.external_job'::regclass ELSE 'tenure.job'::regclass END) / current_setting('block_size')::bigint;
