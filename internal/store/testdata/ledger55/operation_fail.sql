-- Notes why the step failed whose turn it is, for people to see, and puts its operation behind the
-- others for a second: one that always fails must not keep them from their steps. $1 the error.
UPDATE tenure.operation SET failure = $1, next_at = clock_timestamp() + interval '1 second'
WHERE id = (SELECT id FROM tenure.operation
            WHERE ended_at IS NULL AND next_at <= clock_timestamp()
            ORDER BY next_at
            LIMIT 1
            FOR UPDATE SKIP LOCKED);
