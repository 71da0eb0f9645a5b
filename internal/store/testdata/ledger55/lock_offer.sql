-- Lets go of the lock, reserved for a member for a moment ($3, NULL: for anybody).
-- $1 session, $2 epoch, $4 reservation in ms. Only a taker changes the epoch, so
-- that "holder" always means a node that itself decided to hold. The release is noted in the
-- lock's history.
WITH released AS (
    UPDATE tenure.acquire_lock
    SET holder = NULL, holder_member = NULL, expires_at = clock_timestamp(), next_holder = $3,
        reserved_until = CASE WHEN $3::text IS NULL THEN to_timestamp(0)
                              ELSE clock_timestamp() + $4::bigint * interval '1 ms' END
    WHERE name = 'acquire' AND holder = $1 AND epoch = $2
    RETURNING epoch)
INSERT INTO tenure.lock_change (epoch, change, node, member)
SELECT r.epoch, 'released', s.node, s.member
FROM released r LEFT JOIN tenure.node_session s ON s.session_id = $1
ON CONFLICT DO NOTHING;
