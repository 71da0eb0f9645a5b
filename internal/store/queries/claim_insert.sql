-- Claims jobs that the caller read, in one claim per session and turn, under the fence. The
-- caller's own claims begin at once; a peer's session accepts its claims, and gets none if
-- it has ended or is just leaving. No row at all: the lock is lost, somebody took waiting
-- jobs away since the caller read, or no peer lives.
-- FOR KEY SHARE on the lock lets renewals pass and makes a take wait; anyone who waited
-- behind a take sees the new epoch and no row. On a session it lets heartbeats pass and
-- makes its leaving wait.
-- In another incarnation of the database the caller's memory of what is in flight and of
-- how far it has read is not true any more: it must take the lock again.
-- $1 session, $2 epoch, $3 removals at the time of reading, $4 ids, $5 their turns, $6 for
-- each the number of its session in $7, from 1, or 0 for the caller's own; $8 the incarnation
-- that the lock was taken in. xid: of this transaction, and so higher than that of any that
-- had drawn a position before. first: a job of the claim.
WITH peer AS MATERIALIZED (
    SELECT s.session_id, p.n
    FROM unnest($7::uuid[]) WITH ORDINALITY AS p (session_id, n)
    JOIN tenure.node_session s ON s.session_id = p.session_id
    WHERE s.state = 'live'
    FOR KEY SHARE OF s SKIP LOCKED)
INSERT INTO tenure.claim (session_id, turn, job_ids, given, started_at)
SELECT coalesce(peer.session_id, $1), run.turn, run.ids, peer.n IS NOT NULL,
       CASE WHEN peer.n IS NULL THEN clock_timestamp() END
FROM (SELECT FROM tenure.acquire_lock
      WHERE {{holds}} AND removals = $3 AND $8 = tenure.incarnation()
      FOR KEY SHARE) AS fence
CROSS JOIN (SELECT run.n, run.turn, array_agg(run.id) AS ids
            FROM unnest($4::bigint[], $5::integer[], $6::integer[]) AS run (id, turn, n)
            GROUP BY run.n, run.turn) AS run
LEFT JOIN peer ON peer.n = run.n
WHERE run.n = 0 OR peer.n IS NOT NULL
RETURNING id, session_id, turn, pg_current_xact_id()::text::bigint AS xid, job_ids[1] AS first;
