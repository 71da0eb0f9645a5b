-- Withdraws claims that were assigned and have not been accepted for a while, under
-- the fence. Nobody runs their jobs: anyone who accepts one in this moment has locked
-- it, and it is left, or finds no row.
-- $1 the caller's session, $2 epoch, $3 the while in ms.
DELETE FROM tenure.claim
WHERE id = ANY (ARRAY(
    SELECT id FROM tenure.claim
    WHERE given AND started_at IS NULL AND claimed_at < clock_timestamp() - $3::bigint * interval '1 ms'
      AND EXISTS (SELECT FROM tenure.acquire_lock
                  WHERE name = 'acquire' AND holder = $1 AND epoch = $2 AND expires_at > clock_timestamp()
                  FOR KEY SHARE)
    FOR UPDATE SKIP LOCKED))
RETURNING id;
