-- Since when a job could be taken by a worker outside the cluster: for one that was put off this is later than when it was added.
-- Rows of before have none. The table is locked for a moment and not rewritten.

ALTER TABLE tenure.external_job ADD COLUMN ready_at timestamptz;
ALTER TABLE tenure.external_job ALTER COLUMN ready_at SET DEFAULT clock_timestamp();
