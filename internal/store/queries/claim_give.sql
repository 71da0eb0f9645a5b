-- Claims jobs for other nodes' sessions, in one claim per session and turn, under
-- the fence. They have not started: each session takes its own over. No row for a
-- session that has ended, or is just leaving; no row at all: the lock is lost, or somebody
-- took waiting jobs away since the caller read. FOR KEY SHARE on the session makes its
-- leaving wait, and heartbeats pass.
-- $1 the caller's session, $2 epoch, $3 removals at the time of reading, $4 ids,
-- $5 their turns, $6 for each the number of its session in $7, from 1; $8 the incarnation
-- that the lock was taken in. xid: as in claim_insert.
WITH peer AS MATERIALIZED (
    SELECT s.session_id, p.n
    FROM unnest($7::uuid[]) WITH ORDINALITY AS p (session_id, n)
    JOIN tenure.node_session s ON s.session_id = p.session_id
    WHERE s.state = 'live'
    FOR KEY SHARE OF s SKIP LOCKED)
INSERT INTO tenure.claim (session_id, turn, job_ids, given)
SELECT peer.session_id, run.turn, array_agg(run.id), true
FROM (SELECT FROM tenure.acquire_lock
      WHERE name = 'acquire' AND holder = $1 AND epoch = $2 AND removals = $3
        AND NOT paused AND expires_at > clock_timestamp()
        AND $8 = tenure.incarnation()
      FOR KEY SHARE) AS fence
CROSS JOIN unnest($4::bigint[], $5::integer[], $6::integer[]) AS run (id, turn, n)
JOIN peer ON peer.n = run.n
GROUP BY peer.session_id, run.turn
RETURNING id, session_id, turn, pg_current_xact_id()::text::bigint AS xid;
