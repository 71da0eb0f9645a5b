-- What a transactional job costs in the ledger: its end becomes a function, whose plans a
-- session keeps, and the beginning of a tenant's transaction does the same as before with
-- fewer statements. Locks nothing that others wait for. Programs of before go on working:
-- they call begin_tenant as before, and finish jobs by statements of their own.

-- +goose Up

-- Finishes a job within its handler's transaction, or ends that transaction with TN001 when
-- the claim was lost. The pool's user calls it, in a session whose settings are for tenants'
-- statements: so it brings those that job SQL has, for a plan that was made while a table was
-- small is kept when it has become large. keep says whether the finished job can be looked at.
-- +goose StatementBegin
CREATE FUNCTION tenure.finish_in_tx(job_id bigint, job_turn integer, keep boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone record;
BEGIN
    DELETE FROM tenure.job j WHERE j.id = job_id AND j.turn = job_turn
    RETURNING j.created_at, j.priority, j.attempt, j.losses, j.tenant_id, j.queue, j.kind, j.payload, j.meta, j.unique_key, j.correlation_id
    INTO gone;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim on this job was lost' USING ERRCODE = 'TN001';
    END IF;
    IF keep THEN
        INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses,
            tenant_id, queue, kind, outcome, payload, meta, unique_key, correlation_id)
        VALUES (job_id, gone.created_at, clock_timestamp(), job_turn, gone.priority, gone.attempt + 1, gone.losses,
            gone.tenant_id, gone.queue, gone.kind, 'done', gone.payload, gone.meta, gone.unique_key, gone.correlation_id);
    END IF;
    IF gone.unique_key IS NOT NULL THEN
        DELETE FROM tenure.unique_job u
        WHERE u.tenant_id = gone.tenant_id AND u.key = gone.unique_key AND u.job_id = finish_in_tx.job_id;
    END IF;
END
$$;
-- +goose StatementEnd

-- As in 0005, with what enter_tenant does. search_path is set last: whatever came after it
-- would be planned again for each tenant. Assignments, as PERFORM would cost more than what
-- it calls. No SET search_path on this function: leaving it would undo its own work.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.begin_tenant(schema_name text, role_name text, tenant_id text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    place pg_catalog.record;
    done  pg_catalog.text;
BEGIN
    SELECT t.state, t.other_pool INTO place FROM tenure.tenant t
    WHERE t.tenant_id OPERATOR(pg_catalog.=) begin_tenant.tenant_id
      AND (t.state OPERATOR(pg_catalog.=) 'moved' OR t.state OPERATOR(pg_catalog.=) 'moving' AND t.held);
    IF FOUND THEN
        IF place.state OPERATOR(pg_catalog.=) 'moved' THEN
            RAISE EXCEPTION 'tenant % has moved to pool %', tenant_id, place.other_pool
                USING ERRCODE = 'TN003', DETAIL = place.other_pool;
        END IF;
        RAISE EXCEPTION 'tenant % is held while its data is copied to pool %', tenant_id, place.other_pool
            USING ERRCODE = 'TN004', DETAIL = place.other_pool;
    END IF;
    IF pg_catalog.to_regnamespace(pg_catalog.quote_ident(schema_name)) IS NULL THEN
        RAISE EXCEPTION 'tenant % has no schema % in database %', tenant_id, schema_name, pg_catalog.current_database()
            USING ERRCODE = 'TN002', HINT = 'Create the schema, or correct where the tenant is routed to.';
    END IF;
    done := pg_catalog.set_config('role', CASE WHEN role_name OPERATOR(pg_catalog.=) '' THEN 'none' ELSE role_name END, true);
    IF NOT pg_catalog.has_schema_privilege(schema_name, 'USAGE') THEN
        RAISE EXCEPTION 'role % may not use schema % of tenant %', CURRENT_USER, schema_name, tenant_id
            USING ERRCODE = 'TN002', HINT = 'GRANT USAGE ON SCHEMA to that role.';
    END IF;
    done := pg_catalog.set_config('app.tenant_id', tenant_id, true);
    done := pg_catalog.set_config('search_path', pg_catalog.quote_ident(schema_name) OPERATOR(pg_catalog.||) ', pg_temp', true);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION tenure.finish_in_tx(bigint, integer, boolean);
SELECT 1; -- begin_tenant does what it did before
