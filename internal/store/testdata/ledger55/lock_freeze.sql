-- Freezes the pool, or thaws it: nobody holds the lock, claims or fires timers while
-- it is frozen. Comes behind removal_lock in one transaction, which waits for the
-- claim that is just being made: when it commits, no other will be. A change is noted in the
-- lock's history. Within an epoch the first freeze counts, as nobody has had the lock since, whatever
-- was thawed meanwhile, and the last thaw. $1 frozen.
WITH changed AS (
    UPDATE tenure.acquire_lock SET paused = $1 WHERE name = 'acquire' AND paused <> $1
    RETURNING epoch),
thawed AS (
    DELETE FROM tenure.lock_change c USING changed WHERE $1 AND c.epoch = changed.epoch AND c.change = 'thawed')
INSERT INTO tenure.lock_change (epoch, change)
SELECT epoch, CASE WHEN $1 THEN 'frozen' ELSE 'thawed' END FROM changed
ON CONFLICT (epoch, change) DO NOTHING;
