-- A finished job keeps all that it was, so that it can be run again as it was: see tenure jobs rerun. external is null for
-- nodes' jobs. Rows of before have none of these. The tables are locked for a moment and not rewritten.

ALTER TABLE tenure.completed_job ADD COLUMN timeout_ms integer, ADD COLUMN max_attempts smallint,
    ADD COLUMN exclusive_key text COLLATE "C", ADD COLUMN external boolean;
