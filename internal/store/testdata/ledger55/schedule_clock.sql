-- What time it is by the clock that schedules go by.
SELECT clock_timestamp();
