-- Tells the holder of the pool's lock of jobs, for a process that cannot tell it by gossip,
-- unless the pool wants no notifications. $1 the hint.
SELECT pg_notify('tenure_enqueued', $1::text) FROM tenure.pool p WHERE p.notify;
