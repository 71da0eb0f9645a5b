-- Indexes that lead to the jobs with a correlation id, but for the finished ones: see 0026. They are made while jobs
-- are enqueued, run and end: nothing waits for this, and this waits for transactions that were there
-- before, two minutes at most. What an earlier try has left unfinished is made again. Programs of before go on working.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '2min'; -- nobody stands in a queue behind it
DROP INDEX CONCURRENTLY IF EXISTS tenure.job_correlation;
CREATE INDEX CONCURRENTLY job_correlation ON tenure.job (correlation_id) WHERE correlation_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS tenure.timer_job_correlation;
CREATE INDEX CONCURRENTLY timer_job_correlation ON tenure.timer_job (correlation_id) WHERE correlation_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS tenure.suspended_job_correlation;
CREATE INDEX CONCURRENTLY suspended_job_correlation ON tenure.suspended_job (correlation_id) WHERE correlation_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_correlation;
CREATE INDEX CONCURRENTLY dead_letter_job_correlation ON tenure.dead_letter_job (correlation_id) WHERE correlation_id IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS tenure.job_correlation;
DROP INDEX CONCURRENTLY IF EXISTS tenure.timer_job_correlation;
DROP INDEX CONCURRENTLY IF EXISTS tenure.suspended_job_correlation;
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_correlation;
