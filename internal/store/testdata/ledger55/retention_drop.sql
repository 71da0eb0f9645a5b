-- Drops the partition for the jobs that finished on day $1, in UTC, if it is there.
SELECT tenure.drop_day($1::date);
