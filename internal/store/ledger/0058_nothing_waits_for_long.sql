-- What waits for a worker where none turns is given back after three seconds, so no session says any more which of its jobs
-- have waited for long. The table is locked for a moment and not rewritten.

ALTER TABLE tenure.node_session DROP COLUMN waiting;
