-- Ends what listen.sql has begun.
UNLISTEN tenure_enqueued;
