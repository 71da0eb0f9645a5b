-- What time it is on a server, how many connections to it are open, in all databases, and whether
-- it vacuums by itself.
SELECT clock_timestamp() AS clock,
       (SELECT coalesce(sum(numbackends), 0)::integer FROM pg_stat_database) AS connections,
       current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS vacuums;
