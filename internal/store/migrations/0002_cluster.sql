-- What a cluster needs beyond one node. Adding a column with a constant default and
-- changing a default rewrite nothing; they wait for running transactions on the table
-- for a moment.

-- +goose Up

-- Claims that the lock's holder makes for another node's session. They start without
-- started_at, which that node sets when it takes them over.
ALTER TABLE tenure.claim ADD COLUMN given boolean NOT NULL DEFAULT false;

-- A fail-over to a standby that lags loses the last commits and with them the last
-- values of sequences: a new job can get the id of one that a node still runs. So the
-- first turn of a job says on which timeline it was made, which each promotion raises:
-- what is reported about the lost job then finds no row. The first timeline begins at
-- 0, each later one 4096 turns higher.
ALTER TABLE tenure.job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
ALTER TABLE tenure.timer_job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
ALTER TABLE tenure.external_job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;
ALTER TABLE tenure.history_job ALTER COLUMN turn SET DEFAULT
    (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer - 1) << 12;

-- +goose Down
ALTER TABLE tenure.claim DROP COLUMN given;
ALTER TABLE tenure.job ALTER COLUMN turn SET DEFAULT 0;
ALTER TABLE tenure.timer_job ALTER COLUMN turn SET DEFAULT 0;
ALTER TABLE tenure.external_job ALTER COLUMN turn SET DEFAULT 0;
ALTER TABLE tenure.history_job ALTER COLUMN turn SET DEFAULT 0;
