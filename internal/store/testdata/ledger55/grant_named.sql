-- The users whom an operator has named to work on the ledger. One that has no rights there any more is another one of
-- that name: who is dropped loses them first, and nobody named the one that was made since.
SELECT u.user_name FROM tenure.runtime_user u JOIN pg_roles r ON r.rolname = u.user_name
WHERE has_table_privilege(r.oid, 'tenure.job', 'DELETE') ORDER BY u.user_name;
