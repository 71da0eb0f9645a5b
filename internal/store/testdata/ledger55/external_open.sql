-- First statement of a transaction that acquires jobs for an external worker: behind it the next ones
-- see what was frozen, and those who freeze a pool or tenant, limit one or begin to move one wait
-- until it ends (external_shut). It is a lock with a queue: later acquires wait behind who waits for it,
-- so that acquiring without a pause keeps nobody from freezing. The acquire lock's row would: one lock
-- on it that many share does not let anybody in who waits to have it for himself.
SELECT tenure.open_external();
