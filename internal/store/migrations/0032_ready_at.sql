-- Since when a job could start, so that it is known how long it has waited: since it came into
-- tenure.job, also from the timers. A column without a value in the rows that are there, which rewrites
-- nothing and waits for running transactions on tenure.job for a moment. Statements of programs of
-- before name the columns that they write, and leave it to the default.

-- +goose Up
ALTER TABLE tenure.job ADD COLUMN ready_at timestamptz; -- null: it was here before the column
ALTER TABLE tenure.job ALTER COLUMN ready_at SET DEFAULT clock_timestamp();

-- +goose Down
ALTER TABLE tenure.job DROP COLUMN ready_at;
