-- Takes the bound on a session's transactions off that servers since 17 may have.
SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) <> '0';
