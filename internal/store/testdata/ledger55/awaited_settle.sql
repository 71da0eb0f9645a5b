-- Takes in ends of awaited jobs, under the fence. $1 session, $2 epoch, $3 how many at most, $4
-- whether to keep cancelled jobs.
SELECT s.taken, s.started, s.cancelled, s.awaits FROM tenure.settle_awaited($1::uuid, $2::bigint, $3::integer, $4::boolean) s;
