-- Looks for ends of awaited jobs that were not noted, in the next $3 rows behind the job $1 and the
-- one that awaits it, $2. Zeros: that was the last of them.
SELECT n.missed, coalesce(n.last_job, 0) AS last_job, coalesce(n.last_awaiting, 0) AS last_awaiting
FROM tenure.note_missed_ends($1::bigint, $2::bigint, $3::integer) n;
