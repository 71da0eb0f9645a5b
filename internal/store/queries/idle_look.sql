-- Whether anything waits in a pool that was idle, and in how many ms the next timer is
-- due; null: there is none.
SELECT EXISTS (SELECT FROM tenure.job) AS waiting,
       (SELECT extract(epoch FROM min(due_at) - clock_timestamp()) * 1000 FROM tenure.timer_job)::bigint AS due_ms;
