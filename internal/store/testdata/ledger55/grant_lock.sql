-- Has those who grant wait for one another: Postgres refuses two changes of one access list at a time. Only the
-- ledger's owner has the right to this lock; an advisory one could be held by everybody who can connect.
LOCK TABLE tenure.runtime_user IN SHARE UPDATE EXCLUSIVE MODE;
