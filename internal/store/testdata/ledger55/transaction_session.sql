-- Whose transaction keeps somebody waiting, as far as the caller may see that. $1 process.
SELECT coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, ''),
       coalesce(greatest(extract(epoch FROM clock_timestamp() - xact_start), 0), 0)::double precision AS seconds
FROM pg_stat_activity WHERE pid = $1;
