-- When each failed run began, so that people see how long it took. Programs of before go on working, and say it of none.

-- +goose Up
ALTER TABLE tenure.job_error ADD COLUMN began timestamptz;

-- +goose Down
ALTER TABLE tenure.job_error DROP COLUMN began;
