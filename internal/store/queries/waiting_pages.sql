-- How many pages the jobs that wait take, with those that are gone and were not replaced.
SELECT pg_relation_size('tenure.job') / current_setting('block_size')::bigint;
