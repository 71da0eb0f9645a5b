-- Claims that the lock's holder makes for another node's session. They start
-- without started_at, which that node sets when it takes them over. Adding a column
-- with a constant default rewrites nothing; it waits for running transactions on the
-- table for a moment.

-- +goose Up
ALTER TABLE tenure.claim ADD COLUMN given boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE tenure.claim DROP COLUMN given;
