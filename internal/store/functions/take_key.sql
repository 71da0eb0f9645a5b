-- Takes a tenant's unique key for a new job as tenure.enqueue_key does, for a period if one is given,
-- or finds the job that has it. A job may begin a period and come to its end between the first
-- look and the taking of the key, but not after that. A transaction stricter than READ COMMITTED looks
-- twice at what was there when it began: a row tells it then, by 40001, that a period has begun since. The
-- row by which such a transaction tells others of its kind that it has taken the key is no period: its time is long over.
CREATE OR REPLACE FUNCTION tenure.take_key(tenant text, unique_key text, unique_for interval, OUT id bigint, OUT duplicate boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    mine bigint;
BEGIN
    FOR look IN 1..2 LOOP
        SELECT p.job_id, true INTO id, duplicate FROM tenure.unique_period p
        WHERE p.tenant_id = tenant AND p.key = unique_key AND p.free_at > clock_timestamp();
        IF id IS NOT NULL THEN
            DELETE FROM tenure.unique_job u WHERE u.tenant_id = tenant AND u.key = unique_key AND u.job_id = mine;
            RETURN;
        END IF;
        EXIT WHEN look = 2;
        SELECT k.id, k.duplicate INTO mine, duplicate FROM tenure.enqueue_key(tenant, unique_key) k;
        IF mine IS NULL OR duplicate THEN
            id := mine;
            RETURN;
        END IF;
    END LOOP;
    id := mine;
    duplicate := false;
    IF unique_for IS NOT NULL THEN
        INSERT INTO tenure.unique_period (tenant_id, key, job_id, free_at)
        VALUES (tenant, unique_key, mine, clock_timestamp() + unique_for)
        ON CONFLICT (tenant_id, key) DO UPDATE SET job_id = excluded.job_id, free_at = excluded.free_at;
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        INSERT INTO tenure.unique_period (tenant_id, key, job_id, free_at)
        VALUES (tenant, unique_key, mine, to_timestamp(0))
        ON CONFLICT (tenant_id, key) DO NOTHING;
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.take_key FROM PUBLIC;
