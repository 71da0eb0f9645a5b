-- How long until the next timer is due, in ms by the database's clock; no row: none.
SELECT greatest(0, ceil(extract(epoch FROM due_at - clock_timestamp()) * 1000))::bigint
FROM tenure.timer_job
ORDER BY due_at
LIMIT 1;
