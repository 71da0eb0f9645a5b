-- The database's present incarnation; 0: none has begun, or this is a standby.
SELECT tenure.incarnation();
