-- What operators have done, and who they were. A new table, to which rows are only added: users of
-- the ledger may insert and read, and old ones are removed by a function that keeps those of a month
-- in any case. Programs of before go on working, and add nothing.

-- +goose Up
CREATE TABLE tenure.audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text NOT NULL,
    action    text COLLATE "C" NOT NULL, -- such as job.cancel
    tenant_id text COLLATE "C",          -- whose it was; null: of all, or of nobody
    job_id    bigint,
    subject   text,                      -- the name of what it was done to, if that is no job
    detail    jsonb                      -- what was asked for, beside that
);
CREATE INDEX audit_at ON tenure.audit (at, id);

-- +goose StatementBegin
CREATE FUNCTION tenure.trim_audit(kept interval, most integer) RETURNS integer
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH old AS (
    SELECT a.id FROM tenure.audit a WHERE a.at < clock_timestamp() - greatest(kept, interval '30 days')
    ORDER BY a.at, a.id LIMIT most),
removed AS (DELETE FROM tenure.audit a USING old WHERE a.id = old.id RETURNING 1)
SELECT count(*)::integer FROM removed
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION tenure.trim_audit(interval, integer) FROM PUBLIC;

-- +goose Down
DROP FUNCTION tenure.trim_audit(interval, integer);
DROP TABLE tenure.audit;
