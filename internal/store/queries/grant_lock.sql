-- Has those who grant wait for one another: Postgres refuses two changes of one access list
-- at a time. A migration's connection waits for tables only for a moment; this lock is ours.
SELECT pg_advisory_xact_lock(hashtext('tenure grants')) FROM set_config('lock_timeout', '10s', true);
