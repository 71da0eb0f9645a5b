-- Schedules may make jobs for workers outside the cluster. The table is locked for a moment and not rewritten.

ALTER TABLE tenure.schedule ADD COLUMN external boolean NOT NULL DEFAULT false;
