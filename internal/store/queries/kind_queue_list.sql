-- The queues that nodes give kinds.
SELECT kind, queue FROM tenure.kind_queue;
