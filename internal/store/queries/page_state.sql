-- What has to be known before a page is read: a claim made from the page is void
-- when removals has moved on. For the rewinding of cursors: the last position given
-- out, and the oldest transaction that is running.
SELECT l.removals, p.last_value AS position,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin
FROM tenure.acquire_lock l, tenure.job_position p
WHERE l.name = 'acquire';
