-- What has to be known before a page is read: a claim made from the page is void
-- when removals has moved on, and may heed limits of before when limit_changes has. For the rewinding of cursors: the last position given
-- out, and the oldest transaction that is running. And the time, for how long jobs have waited.
SELECT l.removals, l.limit_changes, p.last_value AS position,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin, clock_timestamp() AS now
FROM tenure.acquire_lock l, tenure.job_position p
WHERE l.name = 'acquire';
