-- Limits of exclusive keys: how many jobs of one key may start in a period. The name is the key, or empty:
-- each key of the tenant has such a limit of its own. How many run at a time is one in any case.
-- It holds the lock of a table with few rows for a moment. Programs of before take no notice of the new scope.

-- +goose Up
ALTER TABLE tenure.job_limit
    DROP CONSTRAINT job_limit_scope_check,
    DROP CONSTRAINT job_limit_check,
    ADD CONSTRAINT job_limit_scope_check CHECK (scope IN ('tenant', 'kind', 'queue', 'key')),
    ADD CONSTRAINT job_limit_name_check CHECK (scope = 'key' OR (name = '') = (scope = 'tenant')),
    ADD CONSTRAINT job_limit_key_check CHECK (scope <> 'key' OR max_running IS NULL);

-- +goose Down
DELETE FROM tenure.job_limit WHERE scope = 'key';
ALTER TABLE tenure.job_limit
    DROP CONSTRAINT job_limit_scope_check,
    DROP CONSTRAINT job_limit_name_check,
    DROP CONSTRAINT job_limit_key_check,
    ADD CONSTRAINT job_limit_scope_check CHECK (scope IN ('tenant', 'kind', 'queue')),
    ADD CONSTRAINT job_limit_check CHECK ((name = '') = (scope = 'tenant'));
