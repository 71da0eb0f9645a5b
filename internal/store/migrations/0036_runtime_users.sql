-- Locks that only who works on the ledger can take. Advisory locks are open to everybody who can
-- connect, tenants' roles among them, who could keep external workers from their jobs for as long as
-- they liked. Programs of before know no external workers. New tables and functions; locks nothing.

-- +goose Up
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
