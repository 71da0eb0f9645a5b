-- A claim lists jobs that run with its node and jobs that wait there for a worker, and nobody but the node knew which, or
-- what its workers were with. So each session says which of its jobs have waited there for long, and what keeps the
-- workers. Both columns have constant defaults, so the table is locked for a moment and not rewritten.

ALTER TABLE tenure.node_session
    ADD COLUMN waiting bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN busy jsonb;
