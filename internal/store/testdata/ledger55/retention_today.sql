-- Today by the database's clock, in UTC.
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date;
