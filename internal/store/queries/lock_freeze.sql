-- Freezes the pool, or thaws it: nobody holds the lock, claims or fires timers while
-- it is frozen. Comes behind removal_lock in one transaction, which waits for the
-- claim that is just being made: when it commits, no other will be. A change is noted in the
-- lock's history; the last of its kind counts within an epoch. $1 frozen.
WITH changed AS (
    UPDATE tenure.acquire_lock SET paused = $1 WHERE name = 'acquire' AND paused <> $1
    RETURNING epoch)
INSERT INTO tenure.lock_change (epoch, change)
SELECT epoch, CASE WHEN $1 THEN 'frozen' ELSE 'thawed' END FROM changed
ON CONFLICT (epoch, change) DO UPDATE SET at = excluded.at;
