-- Indexes of finished jobs. Here they are made for days to come only, which takes a moment: tenure
-- migrate goes on to make those of each day that is there, while jobs finish; see
-- queries/index_missing.sql. Programs of before go on working.

-- +goose Up
CREATE INDEX IF NOT EXISTS completed_job_correlation ON ONLY tenure.completed_job (correlation_id) WHERE correlation_id IS NOT NULL;

-- +goose Down
DROP INDEX tenure.completed_job_correlation;
