-- Lets go of the lock, reserved for a member for a moment ($3, NULL: for anybody).
-- $1 session, $2 epoch, $4 reservation in ms. Only a taker changes the epoch, so
-- that "holder" always means a node that itself decided to hold.
UPDATE tenure.acquire_lock
SET holder = NULL, holder_member = NULL, expires_at = clock_timestamp(), next_holder = $3,
    reserved_until = CASE WHEN $3::text IS NULL THEN to_timestamp(0)
                          ELSE clock_timestamp() + $4::bigint * interval '1 ms' END
WHERE name = 'acquire' AND holder = $1 AND epoch = $2;
