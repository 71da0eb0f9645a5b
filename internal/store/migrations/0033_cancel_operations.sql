-- Operations in the background that cancel jobs, and which jobs those are. While one is under way its state is
-- begun, and not running: programs of before carry out what is running, and would delete dead letters by it. It holds the
-- lock of a table with few rows for a moment. Programs of before leave the new columns to their defaults.

-- +goose Up
ALTER TABLE tenure.operation
    DROP CONSTRAINT operation_action_check,
    DROP CONSTRAINT operation_state_check,
    DROP CONSTRAINT operation_check,
    ADD CONSTRAINT operation_action_check CHECK (action IN ('retry', 'delete', 'cancel')),
    ADD CONSTRAINT operation_state_check CHECK (state IN ('running', 'begun', 'done', 'cancelled')),
    ADD CONSTRAINT operation_ended_check CHECK ((state IN ('running', 'begun')) = (ended_at IS NULL)),
    ADD CONSTRAINT operation_begun_check CHECK (action <> 'cancel' OR state <> 'running'),
    ADD COLUMN queue text COLLATE "C", -- which jobs are to be cancelled, with tenant_id and kind; those that were made after died_before are not
    ADD COLUMN job_state text COLLATE "C",
    ADD COLUMN tag text COLLATE "C",
    ADD COLUMN correlation_id text,
    ADD COLUMN pass integer NOT NULL DEFAULT 0; -- how many tables of jobs it has been through; after_id is about the next one
CREATE INDEX operation_unended ON tenure.operation (next_at) WHERE ended_at IS NULL;

-- +goose Down
DELETE FROM tenure.operation WHERE action = 'cancel';
DROP INDEX tenure.operation_unended;
ALTER TABLE tenure.operation
    DROP COLUMN queue, DROP COLUMN job_state, DROP COLUMN tag, DROP COLUMN correlation_id, DROP COLUMN pass,
    DROP CONSTRAINT operation_action_check,
    DROP CONSTRAINT operation_state_check,
    DROP CONSTRAINT operation_ended_check,
    DROP CONSTRAINT IF EXISTS operation_begun_check,
    ADD CONSTRAINT operation_action_check CHECK (action IN ('retry', 'delete')),
    ADD CONSTRAINT operation_state_check CHECK (state IN ('running', 'done', 'cancelled')),
    ADD CONSTRAINT operation_check CHECK ((state = 'running') = (ended_at IS NULL));
