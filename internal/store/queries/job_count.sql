-- How many jobs stand where.
SELECT (SELECT count(*) FROM tenure.job) AS waiting,
       (SELECT count(*) FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
        CROSS JOIN LATERAL (SELECT FROM tenure.job j WHERE j.id = run.id AND j.turn = c.turn OFFSET 0) there) AS claimed, -- a claim stands until its last job has ended
       (SELECT count(*) FROM tenure.timer_job WHERE due_at <> tenure.never()) AS timers,
       (SELECT count(*) FROM tenure.timer_job WHERE due_at = tenure.never()) AS awaiting,
       (SELECT count(*) FROM tenure.external_job) AS external,
       (SELECT count(*) FROM tenure.suspended_job) AS suspended,
       (SELECT count(*) FROM tenure.dead_letter_job) AS dead,
       (SELECT count(*) FROM tenure.completed_job) AS finished;
