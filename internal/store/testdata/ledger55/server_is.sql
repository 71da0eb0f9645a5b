-- Which server a connection leads to. timeline: which promotion it follows; 0 on a standby, -1
-- where it cannot be read and has to be; refused: why it cannot be read; database: as
-- tenure.require_database compares it.
SELECT s.server, coalesce(s.timeline, -1) AS timeline, coalesce(s.refused, '') AS refused, s.owner,
       extract(epoch FROM pg_postmaster_start_time())::text || '/' || current_database() AS database
FROM tenure.server_state() s;
