-- The live sessions that say what keeps their nodes' workers; see session_busy.
SELECT node, member, busy FROM tenure.node_session
WHERE state = 'live' AND expires_at > clock_timestamp() AND busy IS NOT NULL
ORDER BY node, member;
