-- Whose jobs have finished, so that schedules for every tenant reach those of whom nothing else is left here: a holder
-- notes it as it goes, and never reads a finished job for it again. A small table that stands by itself. Programs of
-- before go on working; as holders of a lock they note nobody, and the next one goes on where noting ended.

-- +goose Up

-- The row without a tenant says up to when finished jobs were looked at.
CREATE TABLE tenure.seen_tenant (
    tenant_id text COLLATE "C" PRIMARY KEY,
    until     timestamptz NOT NULL CHECK (isfinite(until)) -- when one of its jobs finished last, to a day
);
REVOKE USAGE ON TYPE tenure.seen_tenant FROM PUBLIC;

-- +goose Down
DROP TABLE tenure.seen_tenant;
