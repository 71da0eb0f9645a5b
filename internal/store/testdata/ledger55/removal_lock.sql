-- First statement of anyone who takes waiting jobs away from outside the acquire loop.
-- It waits for the claim that is just being made and holds up the next one; from
-- then on a job is either in a claim or free to be moved. A caller that freezes with
-- this lock would hold up the whole pool, so the server waits two seconds for its
-- next statement and then ends it.
SELECT l.removals
FROM tenure.acquire_lock l, set_config('idle_in_transaction_session_timeout', '2s', true)
WHERE l.name = 'acquire'
FOR UPDATE OF l;
