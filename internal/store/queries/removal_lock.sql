-- First statement of whoever takes waiting jobs away from outside the acquire loop.
-- It waits for the claim that is just being made and holds up the next one; from
-- then on a job is either in a claim or free to be moved.
SELECT removals FROM tenure.acquire_lock WHERE name = 'acquire' FOR UPDATE;
