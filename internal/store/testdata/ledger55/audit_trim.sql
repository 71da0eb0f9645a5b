-- Removes what was done longer ago than $1 ms, $2 rows at most, and says how many that were. Only the ledger's owner may delete
-- there.
SELECT tenure.trim_audit($1::bigint * interval '1 ms', $2);
