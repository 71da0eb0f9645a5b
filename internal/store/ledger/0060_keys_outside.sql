-- Outside of a transaction.
-- Jobs for workers outside the cluster may have an exclusive key.

SET lock_timeout = '2min';

-- That at most one job of a key is locked holds whoever locks it, a node of an earlier version, too.
DROP INDEX CONCURRENTLY IF EXISTS tenure.external_job_exclusive;
CREATE UNIQUE INDEX CONCURRENTLY external_job_exclusive ON tenure.external_job (tenant_id, exclusive_key) WHERE exclusive_key IS NOT NULL AND lock_expires_at IS NOT NULL;

-- Which is next, and which is tried again: see external_acquire.
DROP INDEX CONCURRENTLY IF EXISTS tenure.external_job_next;
CREATE INDEX CONCURRENTLY external_job_next ON tenure.external_job (tenant_id, exclusive_key, (attempt = 0), position) WHERE exclusive_key IS NOT NULL AND lock_expires_at IS NULL AND due_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS tenure.external_job_again;
CREATE INDEX CONCURRENTLY external_job_again ON tenure.external_job (tenant_id, exclusive_key) WHERE exclusive_key IS NOT NULL AND due_at IS NOT NULL AND attempt > 0;
