-- Adds one job in the caller's transaction. It runs as who calls it, whatever his path puts in its way
-- he could do himself, and asks at the door: see tenure.add_job. Which tenants the caller may enqueue
-- for is asked behind that; app.tenant_id proves nothing, as everybody can set it.
--
-- queue: null is that of the kind, as the nodes that handle it say, or default.
--
-- exclusive_key: of the tenant's jobs with that key at most one runs at a time. timeout: how long each
-- run may take. unique_for: for how long from now on the unique key is taken, whatever becomes of the job.
--
-- pool and with_data are for Tenure's own clients. pool is the number of the pool that they
-- take this database for: with it a refusal comes back in refused, and in other_pool where
-- the tenant is, instead of failing the caller's transaction. with_data: the transaction may
-- write the tenant's own data, too, which may not be while that is being copied.
CREATE OR REPLACE FUNCTION tenure.enqueue(
        tenant         text,
        kind           text,
        payload        jsonb       DEFAULT '{}',
        queue          text        DEFAULT NULL,
        priority       integer     DEFAULT 0,
        run_at         timestamptz DEFAULT NULL,
        delay          interval    DEFAULT NULL,
        max_attempts   integer     DEFAULT NULL,
        meta           jsonb       DEFAULT NULL,
        correlation_id text        DEFAULT NULL,
        unique_key     text        DEFAULT NULL,
        pool           integer     DEFAULT NULL,
        with_data      boolean     DEFAULT true,
        exclusive_key  text        DEFAULT NULL,
        timeout        interval    DEFAULT NULL,
        unique_for     interval    DEFAULT NULL,
        tags           text[]      DEFAULT NULL,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.door AS d (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta,
        correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags)
    VALUES ('enqueue', enqueue.tenant, enqueue.kind, enqueue.payload, enqueue.queue, enqueue.priority,
        enqueue.run_at, enqueue.delay, enqueue.max_attempts, enqueue.meta, enqueue.correlation_id,
        enqueue.unique_key, enqueue.pool, enqueue.with_data, enqueue.exclusive_key, enqueue.timeout,
        enqueue.unique_for, enqueue.tags)
    RETURNING d.id, d.duplicate, d.refused, d.other_pool INTO id, duplicate, refused, other_pool;
    IF id IS NULL AND refused IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
END
$$;
