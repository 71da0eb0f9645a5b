-- How many jobs stand where.
SELECT (SELECT count(*) FROM tenure.job) AS waiting,
       (SELECT coalesce(sum(cardinality(job_ids)), 0) FROM tenure.claim) AS claimed,
       (SELECT count(*) FROM tenure.timer_job WHERE due_at <> tenure.never()) AS timers,
       (SELECT count(*) FROM tenure.timer_job WHERE due_at = tenure.never()) AS awaiting,
       (SELECT count(*) FROM tenure.external_job) AS external,
       (SELECT count(*) FROM tenure.suspended_job) AS suspended,
       (SELECT count(*) FROM tenure.dead_letter_job) AS dead,
       (SELECT count(*) FROM tenure.completed_job) AS finished;
