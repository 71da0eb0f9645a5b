-- Until the transaction ends, the planner chooses among all of its ways and plans again for the
-- arguments of each statement, and no statement waits for long for a table that somebody has locked.
SELECT set_config(setting.name, setting.value, true)
FROM (VALUES ('enable_seqscan', 'on'), ('enable_bitmapscan', 'on'), ('enable_hashjoin', 'on'),
             ('enable_mergejoin', 'on'), ('plan_cache_mode', 'force_custom_plan'),
             ('lock_timeout', '2s')) AS setting (name, value);
