-- Keeps others who acquire jobs for external workers out until the transaction ends.
CREATE OR REPLACE FUNCTION tenure.shut_external() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE tenure.external_gate IN SHARE ROW EXCLUSIVE MODE;
END $$;
