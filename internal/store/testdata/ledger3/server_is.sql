-- Which server a connection leads to. timeline: which promotion it follows, 0 on a
-- standby.
SELECT (SELECT system_identifier::text FROM pg_control_system()) AS server,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END AS timeline;
