-- What the live sessions whose nodes handle a kind say of their workers; see session_busy. $1 kind.
SELECT node, member, coalesce(busy, '{}') FROM tenure.node_session
WHERE state = 'live' AND expires_at > clock_timestamp() AND $1 = ANY (kinds)
ORDER BY node, member;
