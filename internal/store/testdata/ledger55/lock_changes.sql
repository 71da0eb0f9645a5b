-- The newest changes of the acquire lock, at most $1. Within an epoch the take comes first, whatever
-- the clock has done since.
SELECT epoch, change, at, coalesce(node, '') AS node, coalesce(member, '') AS member
FROM tenure.lock_change
ORDER BY epoch DESC, change = 'taken', at DESC
LIMIT $1;
