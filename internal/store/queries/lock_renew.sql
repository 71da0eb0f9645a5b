-- Renews the lock; no row: it is lost. An expired lock is never renewed, even if
-- nobody took it: taking it again gives a new epoch. The database's incarnation comes back,
-- which may be another than the one that the lock was taken in.
-- $1 session, $2 epoch, $3 ttl in ms.
UPDATE tenure.acquire_lock
SET renew_seq = renew_seq + 1, renewed_at = clock_timestamp(), expires_at = clock_timestamp() + $3::bigint * interval '1 ms'
WHERE {{holds}}
RETURNING tenure.incarnation() AS incarnation;
