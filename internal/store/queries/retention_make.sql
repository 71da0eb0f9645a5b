-- Makes the partition for the jobs that finish on day $1, in UTC. Only the ledger's owner
-- could make a table there.
SELECT tenure.make_day($1::date);
