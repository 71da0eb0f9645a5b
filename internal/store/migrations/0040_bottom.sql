-- Up to which position no waiting job stands, or can appear, in this incarnation of the database, as a holder has
-- found out: its successor need not read what is dead there, which nobody can vacuum beside an old snapshot.
-- Programs of before go on working; they do not heed it.

-- +goose Up
ALTER TABLE tenure.acquire_lock ADD COLUMN bottom bigint NOT NULL DEFAULT 0, ADD COLUMN bottom_incarnation integer NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE tenure.acquire_lock DROP COLUMN bottom, DROP COLUMN bottom_incarnation;
