-- Which server a connection leads to. timeline: which promotion it follows; 0 on a standby, -1
-- where it cannot be read and has to be; refused: why it cannot be read; database: as
-- tenure.require_database compares it; installed: when the ledger was made, in µs, which a dump
-- keeps: whole ones, as extra_float_digits may cut others.
SELECT s.server, coalesce(s.timeline, -1) AS timeline, coalesce(s.refused, '') AS refused, s.owner,
       extract(epoch FROM pg_postmaster_start_time())::text || '/' || current_database() AS database,
       coalesce((SELECT extract(epoch FROM min(m.tstamp)) * 1000000 FROM tenure.migration m), 0)::bigint AS installed
FROM tenure.server_state() s;
