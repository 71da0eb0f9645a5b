-- A schedule's jobs have what their kind gives by default: its queue, and its exclusive key, which whoever has the
-- kind's handler notes for those who add jobs without having it. What stands in queue is where jobs go otherwise, also
-- by programs of before, which go on working.

-- +goose Up
ALTER TABLE tenure.schedule
    ADD COLUMN kinds_queue   boolean NOT NULL DEFAULT false, -- no queue was named: the kind's counts, where that is known
    ADD COLUMN exclusive_key text COLLATE "C";               -- as last worked out; null: none, or not known

-- +goose Down
ALTER TABLE tenure.schedule
    DROP COLUMN kinds_queue,
    DROP COLUMN exclusive_key;
