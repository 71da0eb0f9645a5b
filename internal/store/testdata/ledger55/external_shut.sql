-- Waits until nobody acquires jobs for external workers, and lets nobody begin to until the transaction
-- ends. To be run before removal_lock, when nothing else waits for the caller yet. $1 how long it
-- waits at most; then the server waits two seconds for the next statement.
SELECT tenure.shut_external()
FROM set_config('lock_timeout', $1, true) AS patience, set_config('idle_in_transaction_session_timeout', '2s', true) AS idle;
