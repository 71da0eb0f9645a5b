-- What a pool must be before anything is done with it. A server is told from others by when it
-- started, which everybody may ask, and not by its system identifier, which some hide.
SELECT current_setting('server_version_num')::integer AS version,
       pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('server_encoding') AS encoding,
       current_setting('standard_conforming_strings') = 'on' AS standard_strings,
       current_setting('session_replication_role') <> 'replica' AS triggers,
       extract(epoch FROM pg_postmaster_start_time())::text || '/' || current_database() AS identity,
       to_regclass('tenure.acquire_lock') IS NOT NULL AS migrated,
       coalesce((SELECT relpersistence = 'p' FROM pg_class WHERE oid = to_regclass('tenure.acquire_lock')), true) AS lock_logged,
       coalesce((SELECT true FROM pg_index i WHERE i.indrelid = to_regclass('tenure.acquire_lock') AND i.indisunique AND i.indnkeyatts = 2),
                to_regclass('tenure.acquire_lock') IS NULL) AS lock_keyed;
