-- Freezes the pool, or thaws it: nobody holds the lock, claims or fires timers while
-- it is frozen. Comes behind removal_lock in one transaction, which waits for the
-- claim that is just being made: when it commits, no other will be. $1 frozen.
UPDATE tenure.acquire_lock SET paused = $1 WHERE name = 'acquire';
