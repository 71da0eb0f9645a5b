-- Where a tenant is that is moved from one pool to another, and tenants whose jobs
-- wait. A tenant without a row is active. Dropping a NOT NULL, replacing a CHECK and
-- adding columns with constant defaults rewrite nothing; the table is small, and they
-- wait for running transactions on it for a moment.

-- +goose Up

-- Who knows a tenant's schema is the configuration.
ALTER TABLE tenure.tenant ALTER COLUMN schema_name DROP NOT NULL;

-- active: the tenant's jobs run here, unless it is frozen.
-- moving: it is about to leave for other_pool; jobs are taken in, and none is claimed.
-- moved: it left for other_pool; jobs are refused. The row is the forwarding address.
-- arriving: its jobs come in from other_pool, or, without one, from where they should
-- not have been; none is claimed.
ALTER TABLE tenure.tenant DROP CONSTRAINT tenant_state_check;
ALTER TABLE tenure.tenant ADD CONSTRAINT tenant_state_check CHECK (state IN ('active', 'moving', 'moved', 'arriving'));

-- other_pool is the other end of a move; mover is the command that works on it, so that
-- of two only the later one goes on; arrived are the finished jobs of the last batch,
-- which have no key that would keep them from coming twice.
ALTER TABLE tenure.tenant
    ADD COLUMN frozen     boolean  NOT NULL DEFAULT false,
    ADD COLUMN other_pool text,
    ADD COLUMN mover      uuid,
    ADD COLUMN arrived    bigint[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT tenant_goes_somewhere CHECK (other_pool IS NOT NULL OR state NOT IN ('moving', 'moved'));

-- Those whose jobs are not claimed: what timers and lanes are compared with.
CREATE INDEX tenant_resting ON tenure.tenant (tenant_id) WHERE state <> 'active' OR frozen;

-- +goose Down
DROP INDEX tenure.tenant_resting;
DELETE FROM tenure.tenant WHERE state <> 'active' OR schema_name IS NULL;
ALTER TABLE tenure.tenant
    DROP CONSTRAINT tenant_goes_somewhere,
    DROP COLUMN frozen, DROP COLUMN other_pool, DROP COLUMN mover, DROP COLUMN arrived;
ALTER TABLE tenure.tenant DROP CONSTRAINT tenant_state_check;
ALTER TABLE tenure.tenant ADD CONSTRAINT tenant_state_check CHECK (state IN ('active', 'suspended', 'moving'));
ALTER TABLE tenure.tenant ALTER COLUMN schema_name SET NOT NULL;
