-- Tells the holder of the pool's lock of jobs, for a process that cannot tell it by gossip,
-- unless the pool wants no notifications. $1 their ids; none: it is to look.
SELECT pg_notify('tenure_enqueued', coalesce(job.id::text, ''))
FROM tenure.pool p LEFT JOIN unnest($1::bigint[]) AS job (id) ON true
WHERE p.notify;
