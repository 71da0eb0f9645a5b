-- Makes statements fail rather than wait for long for a lock that somebody else holds.
-- $1 how long, $2 whether only until the end of the transaction.
SELECT set_config('lock_timeout', $1, $2);
