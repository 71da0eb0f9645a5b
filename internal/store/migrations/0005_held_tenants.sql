-- Tenants whose own data is being copied to another pool, and a way into a tenant's
-- transaction that sees whether the tenant lives here. Adds a column with a constant
-- default and a function, which rewrites nothing; it waits for running transactions on
-- the small table tenure.tenant for a moment. Programs of before go on working: they call
-- enter_tenant, which stays as it is, and so are not kept out of a tenant that is held.

-- +goose Up

-- held counts while state is moving: the tenant's data is being copied to other_pool, so
-- that nothing of it may be written here.
ALTER TABLE tenure.tenant ADD COLUMN held boolean NOT NULL DEFAULT false;

-- Begins a tenant's transaction: as enter_tenant, but for tenants that live elsewhere by
-- now, or whose data is being copied; then the other pool is in the error's DETAIL. What
-- it reads is committed, whatever the transaction's isolation: nobody who began after a
-- tenant was held or closed gets in, and the mover waits for all who began before. The
-- statements are qualified throughout, as the path is the connection's.
-- +goose StatementBegin
CREATE FUNCTION tenure.begin_tenant(schema_name text, role_name text, tenant_id text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    place record;
BEGIN
    SELECT t.state, t.other_pool INTO place FROM tenure.tenant t
    WHERE t.tenant_id OPERATOR(pg_catalog.=) begin_tenant.tenant_id
      AND (t.state OPERATOR(pg_catalog.=) 'moved' OR t.state OPERATOR(pg_catalog.=) 'moving' AND t.held);
    IF place.state OPERATOR(pg_catalog.=) 'moved' THEN
        RAISE EXCEPTION 'tenant % has moved to pool %', tenant_id, place.other_pool
            USING ERRCODE = 'TN003', DETAIL = place.other_pool;
    ELSIF place.state IS NOT NULL THEN
        RAISE EXCEPTION 'tenant % is held while its data is copied to pool %', tenant_id, place.other_pool
            USING ERRCODE = 'TN004', DETAIL = place.other_pool;
    END IF;
    PERFORM tenure.enter_tenant(schema_name, role_name, tenant_id);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION tenure.begin_tenant(text, text, text);
ALTER TABLE tenure.tenant DROP COLUMN held;
