-- Which of its server's databases a connection leads to, whatever it is called.
SELECT oid::bigint AS database FROM pg_database WHERE datname = current_database();
