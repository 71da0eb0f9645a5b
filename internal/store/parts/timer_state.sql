-- What state a timer_job is in.
CASE WHEN due_at = tenure.never() THEN 'awaiting' WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END
