-- Operations in the background: what an operator wants done to many dead letters, carried out by
-- whoever holds the pool's lock. A table that no earlier program knows; as holders of the lock those
-- leave its rows alone, and the next holder that knows it goes on.

-- +goose Up
CREATE TABLE tenure.operation (
    id          uuid PRIMARY KEY, -- the same in each pool that it concerns
    action      text COLLATE "C" NOT NULL CHECK (action IN ('retry', 'delete')),
    tenant_id   text COLLATE "C", -- which dead letters: null in these columns chooses all
    kind        text COLLATE "C",
    error       text,             -- contains this, which is in lower case
    dead_group  text COLLATE "C",
    died_before timestamptz NOT NULL,
    per_second  double precision CHECK (per_second > 0), -- null: as fast as that goes
    asked_by    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    state       text COLLATE "C" NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    ended_at    timestamptz,
    next_at     timestamptz NOT NULL DEFAULT clock_timestamp(), -- of the next step
    after_id    bigint NOT NULL DEFAULT -9223372036854775808,   -- how far it is: it goes by the ids of dead letters
    done        bigint NOT NULL DEFAULT 0,
    key_taken   bigint NOT NULL DEFAULT 0, -- stay dead, because an unfinished job has their unique key
    left_dead   bigint NOT NULL DEFAULT 0, -- stay dead for other reasons
    failure     text, -- of the last step; null: it has not failed
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX operation_running ON tenure.operation (next_at) WHERE state = 'running';

-- +goose Down
DROP TABLE tenure.operation;
