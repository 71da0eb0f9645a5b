-- The users whom an operator has named to work on the ledger.
SELECT user_name FROM tenure.runtime_user ORDER BY user_name;
