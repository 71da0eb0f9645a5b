-- The newest migration that was applied.
SELECT coalesce(max(version_id), 0)::bigint FROM tenure.migration WHERE is_applied;
