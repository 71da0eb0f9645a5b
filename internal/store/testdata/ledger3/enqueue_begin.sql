-- First statement of a bulk enqueue: whether this database is the pool numbered $1.
-- It also gives the transaction its id before any position is drawn, so that the
-- acquirer knows a transaction is about that may still add rows behind its cursors.
-- The time is for delays, which count from now by the database's clock. The turn is
-- what the column's default would be, worked out once and not for every row.
SELECT pg_current_xact_id()::text, clock_timestamp(),
       ((('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12) AS turn
FROM tenure.pool WHERE number = $1;
