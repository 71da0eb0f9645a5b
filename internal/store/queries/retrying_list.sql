-- How many jobs of a kind have failed and are tried again, of the twenty thousand timers that are due first; those of which there
-- are most first. $1 from how many on.
SELECT kind, count(*) AS jobs, min(due_at) AS next
FROM (SELECT kind, attempt, due_at FROM tenure.timer_job ORDER BY due_at LIMIT 20000) t
WHERE attempt > 0
GROUP BY kind HAVING count(*) >= $1
ORDER BY jobs DESC, kind;
