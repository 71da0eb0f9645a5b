-- Takes in ends of awaited jobs, under the fence. $1 session, $2 epoch, $3 how many at most, $4
-- whether to keep cancelled jobs. The function is called if there are any: to call it first costs a connection ten
-- times what this does.
SELECT coalesce(s.taken, 0) AS taken, coalesce(s.started, 0) AS started, coalesce(s.cancelled, 0) AS cancelled,
       coalesce(s.awaits, EXISTS (SELECT FROM tenure.awaiting w WHERE w.closed_at IS NULL)) AS awaits
FROM (SELECT) AS one
LEFT JOIN LATERAL (
    SELECT ends.*
    FROM (SELECT WHERE EXISTS (SELECT FROM tenure.awaited_end)) AS noted
    CROSS JOIN LATERAL tenure.settle_awaited($1::uuid, $2::bigint, $3::integer, $4::boolean) AS ends) AS s ON true;
