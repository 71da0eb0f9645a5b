-- Has the planner choose among all of its ways, and plan again for the arguments of each
-- statement, until the transaction ends.
SELECT set_config(setting.name, setting.value, true)
FROM (VALUES ('enable_seqscan', 'on'), ('enable_bitmapscan', 'on'), ('enable_hashjoin', 'on'),
             ('enable_mergejoin', 'on'), ('plan_cache_mode', 'force_custom_plan')) AS setting (name, value);
