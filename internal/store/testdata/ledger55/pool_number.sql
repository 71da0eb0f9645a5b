-- This database's number among the pools.
SELECT number, name FROM tenure.pool;
