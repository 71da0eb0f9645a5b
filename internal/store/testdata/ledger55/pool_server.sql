-- Which server this is, how many connections it has for users that are no superusers, and
-- when the ledger was made. superuser_reserved_connections is not the whole reserve since
-- Postgres 16.
SELECT (SELECT s.server FROM tenure.server_state() s) AS server,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0) AS connections,
       coalesce((SELECT extract(epoch FROM min(tstamp)) FROM tenure.migration), 0)::double precision AS installed;
