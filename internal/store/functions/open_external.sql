-- Lets those who acquire jobs for external workers in, beside one another. Not the owner's to do for
-- others: LOCK TABLE asks for the caller's rights. In a function, because a batch of statements without
-- BEGIN may not execute it.
CREATE OR REPLACE FUNCTION tenure.open_external() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE tenure.external_gate IN ROW EXCLUSIVE MODE;
END $$;
