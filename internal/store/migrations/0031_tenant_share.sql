-- How much of a node one tenant may have, so that it can be told of a job that it waits for that. Adding a
-- column without a default rewrites nothing; programs of before leave it empty.

-- +goose Up
ALTER TABLE tenure.node_session ADD COLUMN per_tenant integer; -- jobs of one tenant that the node runs at a time; null: as many as it has workers, or unknown

-- +goose Down
ALTER TABLE tenure.node_session DROP COLUMN per_tenant;
