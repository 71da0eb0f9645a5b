-- Second statement, behind removal_lock: makes every claim void that is made from
-- what was read before.
UPDATE tenure.acquire_lock SET removals = removals + 1 WHERE name = 'acquire';
