-- Claims jobs that the caller read, in one claim per turn, under the fence. No row:
-- the lock is lost, or somebody took waiting jobs away since the caller read.
-- FOR KEY SHARE lets renewals pass and makes a take wait; whoever waited behind a
-- take sees the new epoch and no row.
-- In another incarnation of the database the caller's memory of what is in flight and of
-- how far it has read is not true any more: it must take the lock anew.
-- $1 session, $2 epoch, $3 removals at the time of reading, $4 ids, $5 their turns,
-- $6 the incarnation that the lock was taken in. xid: of this transaction, and so higher
-- than that of any that had drawn a position before.
INSERT INTO tenure.claim (session_id, turn, job_ids, started_at)
SELECT $1, run.turn, array_agg(run.id), clock_timestamp()
FROM (SELECT FROM tenure.acquire_lock
      WHERE name = 'acquire' AND holder = $1 AND epoch = $2 AND removals = $3
        AND NOT paused AND expires_at > clock_timestamp()
        AND $6 = tenure.incarnation()
      FOR KEY SHARE) AS fence
CROSS JOIN unnest($4::bigint[], $5::integer[]) AS run (id, turn)
GROUP BY run.turn
RETURNING id, turn, pg_current_xact_id()::text::bigint AS xid;
