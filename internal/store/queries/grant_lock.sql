-- Has those who grant wait for one another: Postgres refuses two changes of one access list
-- at a time.
SELECT pg_advisory_xact_lock(hashtext('tenure grants'));
