-- A history of each pool's acquire lock: who took it and released it, and when the pool was frozen.
-- A new table, which the statements that change the lock write from this release on. Programs of
-- before go on working and write nothing there: what they do to the lock is missing in the history.

-- +goose Up
CREATE TABLE tenure.lock_change (
    epoch  bigint      NOT NULL,
    change text COLLATE "C" NOT NULL CHECK (change IN ('taken', 'released', 'frozen', 'thawed')),
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    node   text, -- who took or released it; null: frozen or thawed
    member text,
    PRIMARY KEY (epoch, change) -- of those that come again within an epoch the last one counts
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- +goose Down
DROP TABLE tenure.lock_change;
