-- What keeps the dead rows of this database from being tidied away, the oldest of it: $1 at most.
-- hidden: from whom it is hidden for how long a session has had its transaction, and what it does;
-- see statistics_role. VACUUM holds up nobody.
SELECT what, id, coalesce(username, ''), coalesce(application, ''), coalesce(state, ''), xid::text, age(xid) AS age,
       coalesce(greatest(extract(epoch FROM clock_timestamp() - since), 0), 0)::double precision AS seconds,
       CASE WHEN hidden THEN session_user::text ELSE '' END AS hidden
FROM (
  SELECT CASE WHEN s.sends THEN 'standby' ELSE 'session' END AS what, pid::text AS id, usename AS username, application_name AS application, state, xact_start AS since, backend_type IS NULL AS hidden,
         CASE WHEN age(backend_xid) > age(backend_xmin) OR backend_xmin IS NULL THEN backend_xid ELSE backend_xmin END AS xid
  FROM pg_stat_activity, LATERAL (SELECT pid IN (SELECT pid FROM pg_stat_replication) AS sends) AS s
  WHERE (datname = current_database() OR s.sends) AND pid <> pg_backend_pid()
    AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  UNION ALL
  SELECT 'prepared transaction', gid, owner, NULL, NULL, prepared, false, transaction
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT 'replication slot', slot_name, NULL, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, false, xmin
  FROM pg_replication_slots
) AS holdup
WHERE xid IS NOT NULL
ORDER BY age(xid) DESC
LIMIT $1;
