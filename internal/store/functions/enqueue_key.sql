-- Takes a tenant's unique key for a new job, or finds the unfinished one that has it. No
-- id: others took the key and gave it up all the while. Unless the transaction is
-- repeatable read each statement has a snapshot of its own, so that a job which the insert
-- met, and waited for, is seen a moment later.
CREATE OR REPLACE FUNCTION tenure.enqueue_key(tenant text, unique_key text, OUT id bigint, OUT duplicate boolean)
    LANGUAGE plpgsql AS $$
BEGIN
    FOR try IN 1..10 LOOP
        duplicate := false;
        INSERT INTO tenure.unique_job AS u (tenant_id, key, job_id) VALUES (tenant, unique_key, nextval('tenure.job_id'))
        ON CONFLICT DO NOTHING RETURNING u.job_id INTO id;
        EXIT WHEN id IS NOT NULL;
        duplicate := true;
        SELECT u.job_id INTO id FROM tenure.unique_job u WHERE u.tenant_id = tenant AND u.key = unique_key;
        EXIT WHEN id IS NOT NULL;
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_key FROM PUBLIC;
