-- Adds one job that may start at once, as enqueue.sql does, and claims it in the same
-- transaction, under the fence: see claim_insert.sql. What is not claimed waits like any other.
-- The lock's row is read twice, by the statement's snapshot and as it is when it can be locked.
-- If somebody took jobs away in between, such as by freezing the tenant, the snapshot may show
-- neither that nor that the tenant rests, and nothing is claimed.
-- The claim's turn is the job's, which tenure.first_turn() gives it by default: the incarnation, as the
-- fence compares that. To call the function here as well would be under another search_path than
-- what is behind the door has, and Postgres makes a kept plan anew each time that changes: 0.1 ms for each job.
-- $1 session, $2 epoch, $3 the incarnation that the lock was taken in, $4 pool number,
-- $5 tenant, $6 queue, $7 kind, $8 payload, $9 priority, $10 max_attempts, $11 meta,
-- $12 correlation id, $13 timeout, $14 how often limits had been changed when they were read: under
-- others nothing is claimed. The payload and meta come back as a page would show them.
WITH fence AS MATERIALIZED (
    SELECT FROM tenure.acquire_lock l
    WHERE {{holds}}
      AND l.removals = (SELECT s.removals FROM tenure.acquire_lock s WHERE s.name = 'acquire')
      AND $3 = tenure.incarnation() AND l.limit_changes = $14
      AND NOT EXISTS (SELECT FROM tenure.tenant t WHERE t.tenant_id = $5 AND (t.state <> 'active' OR t.frozen))
    FOR KEY SHARE),
added AS (
    INSERT INTO tenure.door AS d (call, pool, tenant, queue, kind, payload, priority, max_attempts, meta, correlation_id, with_data, timeout)
    VALUES ('enqueue', $4::integer, $5::text, $6::text, $7::text, $8::jsonb, $9::integer, $10::integer, $11::jsonb, $12::text, false, $13::interval)
    RETURNING d.id, d.refused, d.other_pool),
claimed AS (
    INSERT INTO tenure.claim (session_id, turn, job_ids, started_at)
    SELECT $1, $3, ARRAY[added.id], clock_timestamp()
    FROM added CROSS JOIN fence
    WHERE added.refused IS NULL
    RETURNING id, turn)
SELECT added.id, added.refused, added.other_pool, claimed.id AS claim, claimed.turn,
       clock_timestamp() AS now, ($8::jsonb)::text AS payload, ($11::jsonb)::text AS meta
FROM added LEFT JOIN claimed ON true;
