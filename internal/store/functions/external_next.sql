-- The jobs of a tenant and a topic that an external worker may lock now, most at most, in order of priority and position; taking:
-- each is locked for this transaction, and left out if somebody else has done so.
-- Of an exclusive key that is the next job only, as of those that nodes run (key_heads), and none while one is locked or waits to be
-- tried again. Each key is looked up once, however many of its jobs are passed over; of a tenant the first 10,000 jobs are looked
-- at, so that a long line behind one key costs no more than that.
CREATE OR REPLACE FUNCTION tenure.external_next(tenant text, topic text, most bigint, taking boolean) RETURNS SETOF bigint
LANGUAGE plpgsql
AS $$
DECLARE
    line   record;
    first  record;
    looked text[] := '{}'; -- keys
    heads  bigint[] := '{}'; -- their next jobs that come behind others of the key
    given  bigint := 0;
BEGIN
    FOR line IN
        SELECT j.id, j.exclusive_key AS key FROM tenure.external_job j
        WHERE j.kind = topic AND j.tenant_id = tenant COLLATE "C" AND j.lock_expires_at IS NULL AND j.due_at IS NULL
          AND j.queue NOT IN (SELECT f.name FROM tenure.frozen f WHERE f.scope = 'queue')
        ORDER BY j.priority DESC, j.position
        LIMIT CASE WHEN most > 0 THEN 10000 ELSE 0 END
    LOOP
        IF line.key = ANY (looked) THEN
            CONTINUE WHEN line.id <> ALL (heads);
        ELSIF line.key IS NOT NULL THEN
            looked := looked || line.key;
            SELECT o.id, o.attempt INTO first FROM tenure.external_job o
            WHERE o.tenant_id = tenant AND o.exclusive_key = line.key AND o.lock_expires_at IS NULL AND o.due_at IS NULL
            ORDER BY (o.attempt = 0), o.position LIMIT 1;
            CONTINUE WHEN EXISTS (
                SELECT FROM tenure.external_job o
                WHERE o.tenant_id = tenant AND o.exclusive_key = line.key AND o.lock_expires_at IS NOT NULL);
            CONTINUE WHEN first.attempt = 0 AND EXISTS (
                SELECT FROM tenure.external_job o
                WHERE o.tenant_id = tenant AND o.exclusive_key = line.key AND o.due_at IS NOT NULL AND o.attempt > 0
                  AND (o.meta->'tenure:skip_retrying') IS DISTINCT FROM 'true');
            IF first.id <> line.id THEN
                heads := heads || first.id;
                CONTINUE;
            END IF;
        END IF;
        IF taking THEN
            PERFORM FROM tenure.external_job j
            WHERE j.id = line.id AND j.lock_expires_at IS NULL AND j.due_at IS NULL
            FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
        END IF;
        RETURN NEXT line.id;
        given := given + 1;
        EXIT WHEN given >= most;
    END LOOP;
END
$$;
