-- A job's time in a list that is read in the order of ids, see queries/job_list.sql.
greatest(least(min(created_at) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING), '9999-12-31 23:59:59Z'), '1970-01-01Z')
