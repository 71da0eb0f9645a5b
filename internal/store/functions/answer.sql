-- Does what is asked at the door, with the owner's rights. It works for that view alone, and nobody may make another
-- trigger of it: only there tenure.name_caller has said who calls.
CREATE OR REPLACE FUNCTION tenure.answer() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'tenure.door'::regclass
       OR has_function_privilege(NEW.caller, to_regproc('tenure.' || NEW.call), 'EXECUTE') IS NOT TRUE THEN
        RAISE EXCEPTION 'permission denied for function tenure.%', NEW.call USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.queue IS NULL AND NEW.call IN ('enqueue', 'enqueue_linked') THEN
        NEW.queue := (SELECT q.queue FROM tenure.kind_queue q WHERE q.kind = NEW.kind); -- as the nodes say
    END IF;
    NEW.queue := coalesce(NEW.queue, 'default');
    CASE NEW.call
    WHEN 'enqueue', 'enqueue_external' THEN
        SELECT a.* INTO NEW.id, NEW.duplicate, NEW.refused, NEW.other_pool FROM tenure.add_job(NEW) a;
        NEW.answer := NEW.queue;
    WHEN 'enqueue_linked' THEN
        SELECT a.* INTO NEW.id, NEW.duplicate, NEW.refused, NEW.other_pool FROM tenure.add_linked_job(NEW) a;
        NEW.answer := NEW.queue;
    WHEN 'cancel' THEN
        NEW.answer := coalesce(tenure.cancel_as(NEW.caller, NEW.job_id, NEW.keep), '');
    WHEN 'retry' THEN
        NEW.answer := tenure.retry_as(NEW.caller, NEW.job_id);
    END CASE;
    RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.answer FROM PUBLIC;
-- What it called before it passed the row on.
DROP FUNCTION IF EXISTS tenure.enqueue_as, tenure.enqueue_external_as, tenure.enqueue_linked_as, tenure.options_fault;
