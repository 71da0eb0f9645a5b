-- Takes the role that is shown what other users' sessions do, until the transaction ends, if the user is a member of it
-- and does not have its rights already: a NOINHERIT user has them only so.
SELECT set_config('role', 'pg_read_all_stats', true)
WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')
  AND pg_has_role(session_user, 'pg_read_all_stats', CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END);
