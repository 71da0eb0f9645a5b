-- What has to be known before a page is read: a claim made from the page is void
-- when removals has moved on. For the rewinding of cursors: the last position given
-- out, and the span of transactions that may still add a row behind it.
SELECT l.removals, p.last_value AS position,
       pg_snapshot_xmin(s)::text::bigint AS xmin, pg_snapshot_xmax(s)::text::bigint AS xmax
FROM tenure.acquire_lock l, tenure.job_position p, pg_current_snapshot() AS s
WHERE l.name = 'acquire';
