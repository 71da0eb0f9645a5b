-- Ends the transaction it is called in when the statement before it touched no row.
CREATE OR REPLACE FUNCTION tenure.require_claim(standing bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
    IF standing = 0 THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
END
$$;
