-- Triggers can be switched off, as for replication: then nothing is done, which must not look like an answer.
CREATE OR REPLACE FUNCTION tenure.unanswered() RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'triggers are switched off in this session, and one of them does what is asked of the ledger'
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run: SET session_replication_role = origin';
END
$$;
