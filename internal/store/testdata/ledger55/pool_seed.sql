-- Puts the pool's number into the high bits of its job ids. $1 the first id.
SELECT setval('tenure.job_id', $1::bigint, false)
WHERE (SELECT last_value FROM tenure.job_id) < $1::bigint;
