-- Indexes by which lists find a tenant, kind, queue or outcome that few finished jobs or dead letters have, and
-- finished jobs with tags. Of finished jobs one says, of each 16 pages, between which times and with which
-- outcomes the jobs in them finished, and what tenants, kinds and queues theirs are not: it takes the place of the
-- one of the times alone, as each index costs every job that finishes. Those of the days that are there are made
-- behind this, as in 0026, and then the old one is removed: see index_missing.sql. Those of dead letters are made as
-- in 0025. Programs of before go on working.

-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS completed_job_sought ON ONLY tenure.completed_job USING brin (finished_at, outcome,
    tenant_id text_bloom_ops (n_distinct_per_range = 500, false_positive_rate = 0.001),
    kind text_bloom_ops (n_distinct_per_range = 100, false_positive_rate = 0.001),
    queue text_bloom_ops (n_distinct_per_range = 50, false_positive_rate = 0.001))
    WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX IF NOT EXISTS completed_job_tagged ON ONLY tenure.completed_job (id) WHERE meta IS NOT NULL;
SET lock_timeout = '2min'; -- nobody stands in a queue behind it
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_tenant;
CREATE INDEX CONCURRENTLY dead_letter_job_tenant ON tenure.dead_letter_job (tenant_id, id);
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_kind;
CREATE INDEX CONCURRENTLY dead_letter_job_kind ON tenure.dead_letter_job (kind, id);
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_queue;
CREATE INDEX CONCURRENTLY dead_letter_job_queue ON tenure.dead_letter_job (queue, id);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_tenant;
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_kind;
DROP INDEX CONCURRENTLY IF EXISTS tenure.dead_letter_job_queue;
DROP INDEX IF EXISTS tenure.completed_job_tagged;
DROP INDEX IF EXISTS tenure.completed_job_sought;
CREATE INDEX IF NOT EXISTS completed_job_finished ON tenure.completed_job USING brin (finished_at) WITH (pages_per_range = 32, autosummarize = on);
