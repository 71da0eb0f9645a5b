-- The days that finished jobs have a partition for, in UTC.
SELECT to_date(substring(c.relname FROM 'completed_job_(\d{8})$'), 'YYYYMMDD')
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'tenure.completed_job'::regclass AND c.relname ~ '^completed_job_\d{8}$'
ORDER BY 1;
