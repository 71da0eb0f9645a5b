-- Which queue the nodes give jobs of a kind, for those who enqueue without knowing the kind's handler: in SQL, on the command line, in
-- programs that run no jobs.

CREATE TABLE tenure.kind_queue (
    kind  text COLLATE "C" PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    CONSTRAINT kind_queue_bounds CHECK (octet_length(kind) <= 256 AND octet_length(queue) <= 256));
REVOKE USAGE ON TYPE tenure.kind_queue FROM PUBLIC;
