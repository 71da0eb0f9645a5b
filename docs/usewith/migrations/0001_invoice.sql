-- +goose Up
CREATE TABLE invoice (
    id      bigint PRIMARY KEY,
    sent_at timestamptz
);

-- +goose Down
DROP TABLE invoice;
