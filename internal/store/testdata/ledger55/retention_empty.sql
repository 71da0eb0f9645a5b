-- Removes the jobs that finished on day $1, in UTC, unless somebody reads them.
SELECT tenure.empty_day($1::date);
