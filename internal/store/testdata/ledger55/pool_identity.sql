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
                to_regclass('tenure.acquire_lock') IS NULL) AS lock_keyed,
       CASE WHEN citus.said LIKE '%>coordinator<%' THEN 'its database is the coordinator of a Citus cluster'
            WHEN citus.said LIKE '%>schemas<%' THEN 'its database has schemas that Citus distributes'
            WHEN citus.said LIKE '%>ledger<%' THEN 'its schema tenure has tables that Citus distributes' ELSE '' END AS citus
FROM (SELECT CASE WHEN to_regclass('pg_catalog.pg_dist_node') IS NOT NULL THEN query_to_xml( -- a statement cannot name what may not be there
          'SELECT CASE WHEN (SELECT groupid FROM pg_catalog.pg_dist_local_group) = 0 AND EXISTS (SELECT FROM pg_catalog.pg_dist_node WHERE groupid <> 0) THEN ''coordinator'' '
          || CASE WHEN to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL THEN 'WHEN EXISTS (SELECT FROM pg_catalog.pg_dist_schema) THEN ''schemas'' ' ELSE '' END ||
          'WHEN EXISTS (SELECT FROM pg_catalog.pg_dist_partition p JOIN pg_catalog.pg_class c ON c.oid = p.logicalrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ''tenure'') THEN ''ledger'' END AS is',
          false, false, '')::text END AS said) citus;
