-- Which server this is, and how many connections it has for users that are no superusers:
-- superuser_reserved_connections is not the whole reserve since Postgres 16.
SELECT (SELECT s.server FROM tenure.server_state() s) AS server,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0) AS connections;
