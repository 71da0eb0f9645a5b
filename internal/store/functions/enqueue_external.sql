-- As tenure.enqueue, for workers outside the cluster: topic is what they ask for, and the job's kind.
CREATE OR REPLACE FUNCTION tenure.enqueue_external(
        tenant         text,
        topic          text,
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
        unique_for     interval    DEFAULT NULL,
        tags           text[]      DEFAULT NULL,
        OUT id         bigint,
        OUT duplicate  boolean,
        OUT refused    text,
        OUT other_pool text)
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.door AS d (call, tenant, kind, payload, queue, priority, run_at, delay, max_attempts, meta,
        correlation_id, unique_key, pool, with_data, exclusive_key, unique_for, tags)
    VALUES ('enqueue_external', enqueue_external.tenant, enqueue_external.topic, enqueue_external.payload,
        enqueue_external.queue, enqueue_external.priority, enqueue_external.run_at, enqueue_external.delay,
        enqueue_external.max_attempts, enqueue_external.meta, enqueue_external.correlation_id,
        enqueue_external.unique_key, enqueue_external.pool, enqueue_external.with_data, enqueue_external.exclusive_key,
        enqueue_external.unique_for, enqueue_external.tags)
    RETURNING d.id, d.duplicate, d.refused, d.other_pool INTO id, duplicate, refused, other_pool;
    IF id IS NULL AND refused IS NULL THEN
        PERFORM tenure.unanswered();
    END IF;
END
$$;
