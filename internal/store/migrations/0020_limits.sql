-- Limits: how many jobs of a tenant, of one of its kinds or queues may be in flight at a time, and
-- how many may start in a period. A tenant's own max_running stays where it was, in tenure.tenant.
-- Two tables, and a column with a constant default, which is no rewrite, that no earlier program knows;
-- as holders of the lock those heed none of it.

-- +goose Up

-- What operators have set. Of a tenant whose id is empty, each tenant has such a limit of its own,
-- unless it has one by itself.
CREATE TABLE tenure.job_limit (
    tenant_id   text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL CHECK (scope IN ('tenant', 'kind', 'queue')),
    name        text COLLATE "C" NOT NULL, -- of the kind or queue; of a tenant: empty
    max_running integer CHECK (max_running > 0),
    rate        integer CHECK (rate > 0), -- so many starts in per_ms, and burst at once
    per_ms      bigint  CHECK (per_ms > 0),
    burst       integer CHECK (burst > 0),
    PRIMARY KEY (tenant_id, scope, name),
    CHECK ((name = '') = (scope = 'tenant')),
    CHECK (max_running IS NOT NULL OR rate IS NOT NULL),
    CHECK ((rate IS NULL) = (per_ms IS NULL) AND (rate IS NULL) = (burst IS NULL))
);

-- How much of its rate each tenant has used: at this time the bucket of tokens is full again. It is
-- written in the transaction of the claim that takes them. One that is full has no row, or an old one.
CREATE TABLE tenure.rate_bucket (
    tenant_id text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    full_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, scope, name)
) WITH (fillfactor = 50);

-- How often limits were changed, behind the lock's row: what was read under others is void.
ALTER TABLE tenure.acquire_lock ADD COLUMN limit_changes bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE tenure.acquire_lock DROP COLUMN limit_changes;
DROP TABLE tenure.rate_bucket;
DROP TABLE tenure.job_limit;
