-- What keeps the dead rows of this database from being tidied away, the oldest of it: $1 at most.
-- For how long a session has had its transaction is shown only to its own user and to
-- members of pg_read_all_stats. VACUUM holds up nobody.
SELECT what, id, coalesce(username, ''), coalesce(application, ''), coalesce(state, ''), xid::text, age(xid) AS age,
       coalesce(greatest(extract(epoch FROM clock_timestamp() - since), 0), 0)::double precision AS seconds
FROM (
  SELECT CASE backend_type WHEN 'walsender' THEN 'standby' ELSE 'session' END AS what, pid::text AS id, usename AS username, application_name AS application, state, xact_start AS since,
         CASE WHEN age(backend_xid) > age(backend_xmin) OR backend_xmin IS NULL THEN backend_xid ELSE backend_xmin END AS xid
  FROM pg_stat_activity
  WHERE (datname = current_database() OR backend_type = 'walsender') AND pid <> pg_backend_pid()
    AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  UNION ALL
  SELECT 'prepared transaction', gid, owner, NULL, NULL, prepared, transaction
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT 'replication slot', slot_name, NULL, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, xmin
  FROM pg_replication_slots
) AS holdup
WHERE xid IS NOT NULL
ORDER BY age(xid) DESC
LIMIT $1;
