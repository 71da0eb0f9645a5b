-- The newest migration that was applied, and the oldest program, by the newest migration
-- that it knows, that may work on the ledger as it is now. Migrations that only add to the
-- ledger leave the programs before them able to, and say so in oldest_program; a ledger
-- without that column is for programs of its own version.
SELECT coalesce(max(m.version_id), 0)::bigint AS version,
       coalesce((SELECT (to_jsonb(p) ->> 'oldest_program')::bigint FROM tenure.pool p), max(m.version_id), 0)::bigint AS oldest_program
FROM tenure.migration m WHERE m.is_applied;
