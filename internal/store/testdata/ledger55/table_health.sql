-- How far vacuum is behind on each of the ledger's tables: its dead rows, at how many of them it is
-- due, and whether the table is vacuumed by itself at all.
SELECT c.relname::text AS name, coalesce(s.n_dead_tup, 0) AS dead,
       (coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::float8)
           + coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::float8) * greatest(c.reltuples, 0))::bigint AS due_at,
       coalesce(o.enabled, true) AS vacuums
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'tenure'
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
CROSS JOIN LATERAL (
    SELECT max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold')::float8 AS threshold,
           max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor')::float8 AS scale,
           max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled')::boolean AS enabled
    FROM pg_options_to_table(c.reloptions)) o
WHERE c.relkind = 'r'
ORDER BY c.relname;
