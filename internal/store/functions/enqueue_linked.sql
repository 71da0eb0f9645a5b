-- Adds one job as tenure.enqueue does, with what links it to others of its tenant. It starts when the
-- jobs of after_jobs have ended, or, as the completion job of a batch, those that are added with
-- in_batch. A job of after_jobs is kept from ending until this transaction ends. refused is, besides
-- what tenure.enqueue says, 'no job' or 'no batch', with the id in other_pool; without pool that is raised.
CREATE OR REPLACE FUNCTION tenure.enqueue_linked(
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
        after_jobs     bigint[]    DEFAULT '{}',
        on_failure     text        DEFAULT 'wait',
        as_batch       boolean     DEFAULT false,
        in_batch       bigint      DEFAULT NULL,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.door AS d (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta,
        correlation_id, unique_key, pool, with_data, exclusive_key, timeout, unique_for, tags, after_jobs,
        on_failure, as_batch, in_batch)
    VALUES ('enqueue_linked', enqueue_linked.tenant, enqueue_linked.kind, enqueue_linked.payload,
        enqueue_linked.queue, enqueue_linked.priority, enqueue_linked.run_at, enqueue_linked.delay,
        enqueue_linked.max_attempts, enqueue_linked.meta, enqueue_linked.correlation_id, enqueue_linked.unique_key,
        enqueue_linked.pool, enqueue_linked.with_data, enqueue_linked.exclusive_key, enqueue_linked.timeout,
        enqueue_linked.unique_for, enqueue_linked.tags, enqueue_linked.after_jobs, enqueue_linked.on_failure,
        enqueue_linked.as_batch, enqueue_linked.in_batch)
    RETURNING d.id, d.duplicate, d.refused, d.other_pool INTO id, duplicate, refused, other_pool;
    IF id IS NULL AND refused IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
END
$$;
