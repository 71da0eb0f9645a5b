-- Replication slots of the server that nobody reads from and that keep something for who may come back.
SELECT slot_name::text FROM pg_replication_slots
WHERE NOT active AND (restart_lsn IS NOT NULL OR xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
ORDER BY slot_name;
