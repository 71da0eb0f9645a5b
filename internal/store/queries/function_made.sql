-- The names of the functions that the ledger has.
SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace;
