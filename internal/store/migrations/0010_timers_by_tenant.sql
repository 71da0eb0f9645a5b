-- Timers are fired in shares by tenant, so that one with a million of them due at midnight does
-- not hold up the others' (see timer_share.sql). The index is made while enqueuing with a delay,
-- retries and firing wait: for about half a second per million timers.

-- +goose Up
CREATE INDEX timer_job_tenant ON tenure.timer_job (tenant_id, due_at);
