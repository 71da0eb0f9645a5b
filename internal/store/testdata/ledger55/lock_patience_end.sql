-- Puts back what lock_patience has set for the session.
RESET lock_timeout;
