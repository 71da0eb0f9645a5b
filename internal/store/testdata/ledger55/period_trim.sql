-- Removes unique keys whose period is over, a batch at a time, but for rows that somebody has locked, and
-- counts them. $1 how many at most.
WITH gone AS (
    DELETE FROM tenure.unique_period
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM tenure.unique_period
                            WHERE free_at <= clock_timestamp() LIMIT $1
                            FOR UPDATE SKIP LOCKED))
    RETURNING 1)
SELECT count(*) FROM gone;
