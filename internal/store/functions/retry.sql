-- Makes a job of the caller's that is dead, or waits for its time, wait to run now, in his
-- transaction, as tenure jobs retry does, tells the holder, and says whether it did. 23505: an
-- unfinished job has its unique key. It runs as who calls it, and asks at the door.
CREATE OR REPLACE FUNCTION tenure.retry(id bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    done boolean;
BEGIN
    INSERT INTO tenure.door AS d (call, job_id) VALUES ('retry', retry.id) RETURNING d.answer INTO done;
    IF done IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
    RETURN done;
END
$$;
