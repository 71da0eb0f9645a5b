-- Second statement, behind removal_lock: makes every claim void that is made from
-- what was read before. From here on the transaction waits for no lock for long: it holds
-- the acquire lock's row, for which claims and renewals wait. $1 how long.
UPDATE tenure.acquire_lock SET removals = removals + 1 WHERE name = 'acquire'
RETURNING set_config('lock_timeout', $1, true);
