-- Queues and kinds that an operator has frozen: of no tenant is a job of theirs claimed here. It is a small table that
-- stands by itself, so that no tenant's move takes any of it along. Programs of before go on working; as holders of a
-- lock they heed none of it.

-- +goose Up
CREATE TABLE tenure.frozen (
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('queue', 'kind')),
    name  text COLLATE "C" NOT NULL CHECK (name <> ''),
    since timestamptz NOT NULL DEFAULT now() CHECK (isfinite(since)),
    PRIMARY KEY (scope, name)
);

-- +goose Down
DROP TABLE tenure.frozen;
