-- Keeps others from migrating the ledger for as long as the transaction lasts. It conflicts with itself and
-- with nothing that a migration or anybody else does to this table, and asks for a right that only its owner
-- has: an advisory lock could be held by everybody who can connect, a tenant's role among them.
LOCK TABLE tenure.migration IN SHARE UPDATE EXCLUSIVE MODE;
