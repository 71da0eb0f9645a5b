-- Has a transaction stay open for as long as it likes. Before version 17 the second setting does not exist.
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout');
