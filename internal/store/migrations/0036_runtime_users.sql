-- Who works on the ledger is said by an operator and kept here: before, whoever had some rights was taken for
-- a runtime user, and given what later versions added. And locks that only who works on the ledger can take:
-- advisory locks are open to everybody who can connect, tenants' roles among them, who could keep external
-- workers from their jobs. Programs of before go on working: they need neither. New tables and functions;
-- locks nothing.

-- +goose Up
-- The users that `tenure migrate --grants --runtime` named, and nobody but the owner writes here.
CREATE TABLE tenure.runtime_user (
    user_name text COLLATE "C" PRIMARY KEY,
    named_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The tenant whose role this is, '' for all of them; null: no tenant's. By the pattern of roles it is one if
-- the ledger knows the tenant, or if it is there and cannot log in: nodes and clients can.
-- +goose StatementBegin
CREATE FUNCTION tenure.tenant_of_role(name text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE queue AS (
        (SELECT j.queue FROM tenure.job j ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT next.queue FROM queue CROSS JOIN LATERAL (
            SELECT j.queue FROM tenure.job j WHERE j.queue > queue.queue ORDER BY j.queue LIMIT 1) next),
    pattern AS (
        SELECT split_part(r.role_name, '{tenant}', 1) AS before, split_part(r.role_name, '{tenant}', 2) AS behind
        FROM tenure.tenant_role r WHERE r.tenant_id = '' AND strpos(r.role_name, '{tenant}') > 0),
    fits AS (
        SELECT substr(name, length(before) + 1, length(name) - length(before) - length(behind)) AS tenant
        FROM pattern
        WHERE length(name) > length(before) + length(behind) AND left(name, length(before)) = before AND right(name, length(behind)) = behind)
    SELECT coalesce(
        (SELECT min(r.tenant_id) FROM tenure.tenant_role r WHERE r.role_name = name),
        (SELECT f.tenant FROM fits f
         WHERE NOT EXISTS (SELECT FROM tenure.tenant_role r WHERE r.tenant_id = f.tenant) -- which has another one
           AND (EXISTS (SELECT FROM pg_roles WHERE rolname = name AND NOT rolcanlogin)
                OR EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = f.tenant)
                OR EXISTS (SELECT FROM tenure.timer_job j WHERE j.tenant_id = f.tenant)
                OR EXISTS (SELECT FROM queue CROSS JOIN LATERAL (
                       SELECT FROM tenure.job j WHERE j.queue = queue.queue AND j.tenant_id = f.tenant LIMIT 1) j))))
$$;
-- +goose StatementEnd

-- Its table lock is the gate through which those go who acquire jobs for external workers. A row's lock
-- stands for the tenants without a row of their own in tenure.tenant whose name has that hash.
CREATE TABLE tenure.external_gate (slot integer PRIMARY KEY);
INSERT INTO tenure.external_gate SELECT generate_series(0, 1023);

-- Not the owner's to do for others: LOCK TABLE asks for the caller's rights. In functions, because a
-- batch of statements without BEGIN may not execute it.
-- +goose StatementBegin
CREATE FUNCTION tenure.open_external() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE tenure.external_gate IN ROW EXCLUSIVE MODE;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION tenure.shut_external() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE tenure.external_gate IN SHARE ROW EXCLUSIVE MODE;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION tenure.shut_external();
DROP FUNCTION tenure.open_external();
DROP TABLE tenure.external_gate;
DROP FUNCTION tenure.tenant_of_role(text);
DROP TABLE tenure.runtime_user;
