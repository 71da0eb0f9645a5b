-- Claims jobs that the caller read, in one claim per turn, under the fence. No row:
-- the lock is lost, or somebody took waiting jobs away since the caller read.
-- FOR KEY SHARE lets renewals pass and makes a take wait; whoever waited behind a
-- take sees the new epoch and no row.
-- After a fail-over the caller's memory of what is in flight is not true any more, as
-- ended claims may have come back: it must take the lock anew on the new timeline.
-- $1 session, $2 epoch, $3 removals at the time of reading, $4 ids, $5 their turns,
-- $6 the timeline that the lock was taken on.
INSERT INTO tenure.claim (session_id, turn, job_ids, started_at)
SELECT $1, run.turn, array_agg(run.id), clock_timestamp()
FROM (SELECT FROM tenure.acquire_lock
      WHERE name = 'acquire' AND holder = $1 AND epoch = $2 AND removals = $3
        AND NOT paused AND expires_at > clock_timestamp()
        AND $6 = (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer)
      FOR KEY SHARE) AS fence
CROSS JOIN unnest($4::bigint[], $5::integer[]) AS run (id, turn)
GROUP BY run.turn
RETURNING id, turn;
