-- Waits until nobody adds to a batch any more whose completion job awaits nothing: who began before
-- shares a lock on its row, and who comes now is refused. $1 the batch.
SELECT FROM tenure.awaiting WHERE job_id = $1 FOR UPDATE;
