-- Cancels an unfinished job of the caller's, in his transaction, and says 'cancelled' or
-- 'cancelling'; null: there is none. keep: it is kept among the finished ones, which is for ledgers
-- with a retention only. It runs as who calls it, and asks at the door: see tenure.cancel_as.
CREATE OR REPLACE FUNCTION tenure.cancel(id bigint, keep boolean DEFAULT true) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    INSERT INTO tenure.door AS d (call, job_id, keep) VALUES ('cancel', cancel.id, cancel.keep) RETURNING d.answer INTO said;
    IF said IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
    RETURN nullif(said, '');
END
$$;
