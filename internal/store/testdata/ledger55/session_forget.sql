-- Removes sessions that ended over a day ago.
DELETE FROM tenure.node_session
WHERE state <> 'live' AND last_seen < clock_timestamp() - interval '1 day'
  AND NOT EXISTS (SELECT FROM tenure.claim c WHERE c.session_id = node_session.session_id);
