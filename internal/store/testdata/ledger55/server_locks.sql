-- How many locks a query of all finished jobs takes, one for each day's table and each of its indexes, and for how many the
-- server has room.
SELECT count(DISTINCT i.inhrelid) + count(x.indexrelid) AS look,
       current_setting('max_locks_per_transaction')::bigint * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) AS room
FROM pg_inherits i LEFT JOIN pg_index x ON x.indrelid = i.inhrelid
WHERE i.inhparent = 'tenure.completed_job'::regclass;
