-- The mark by which a transaction stricter than READ COMMITTED tells others of its kind that it has taken a unique key
-- is no period, and says so: its time was the clock's, which may be set back, and until it was that time again the key
-- counted as taken. Programs of before go on working.

-- +goose Up

-- As in 0023, apart from the mark's time, and without the setting that 0035 has taken away: it is called by what has it.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- +goose Down
-- Nothing has to be undone: the steps before know nothing of it.
SELECT 1;
