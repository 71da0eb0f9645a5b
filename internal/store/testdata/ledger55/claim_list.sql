-- Every claim in flight.
SELECT id, session_id, turn, job_ids FROM tenure.claim;
