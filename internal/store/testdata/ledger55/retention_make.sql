-- Makes the partition for the jobs that finish on day $1, in UTC, or brings the block range indexes up to date
-- of the one that is there. Only the ledger's owner could do either.
SELECT tenure.make_day($1::date);
