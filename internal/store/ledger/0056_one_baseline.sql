-- What baseline.sql has and a ledger of version 55 has not: the digests of the functions' texts, by which those are made
-- again that have changed. And programs of older versions than that are no longer admitted: nothing was released that
-- is one. It needs tenure.pool for a moment.

CREATE TABLE tenure.function_text (
    name   text COLLATE "C" PRIMARY KEY,
    digest text NOT NULL
);
REVOKE USAGE ON TYPE tenure.function_text FROM PUBLIC;
UPDATE tenure.pool SET oldest_program = 55;
ALTER TABLE tenure.pool ALTER COLUMN oldest_program SET DEFAULT 55;
