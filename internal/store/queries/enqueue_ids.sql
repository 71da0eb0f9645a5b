-- Draws ids for $1 jobs that are added in bulk.
SELECT array_agg(nextval('tenure.job_id')) FROM generate_series(1, $1::integer);
