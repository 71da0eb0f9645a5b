-- Which programs may go on working on this ledger: those whose own newest migration is at
-- least oldest_program. Migrations that only add leave it as it is, so that a ledger is
-- migrated while the nodes of the release before work on it. A migration that takes away or
-- changes what an older program uses raises it, which docs/upgrades.md explains. Adding a
-- column with a constant default rewrites nothing; it needs the table for a moment.

-- +goose Up
ALTER TABLE tenure.pool ADD COLUMN oldest_program integer NOT NULL DEFAULT 3;

-- +goose Down
ALTER TABLE tenure.pool DROP COLUMN oldest_program;
