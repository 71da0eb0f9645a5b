-- First statement of a bulk enqueue: whether this database is the pool numbered $1.
-- It also gives the transaction its id, which the first row would do otherwise.
-- The time is for delays, which count from now by the database's clock. The turn is
-- what the column's default would be, worked out once and not for every row.
SELECT pg_current_xact_id()::text, clock_timestamp(),
       tenure.first_turn() AS turn
FROM tenure.pool WHERE number = $1;
