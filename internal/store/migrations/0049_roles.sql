-- A tenant whose role is the user that nodes connect as has no transactions any more: they would see all tenants' jobs.
-- And nobody but the ledger's owner may make something of the row types of its tables and views: a tenant's table with
-- a column of such a type keeps these from being altered. Programs of before go on working. Locks nothing.

-- +goose Up

-- As in 0009, but for the role.
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
    IF role_name OPERATOR(pg_catalog.=) SESSION_USER::pg_catalog.text THEN
        RAISE EXCEPTION 'role % of tenant % is the user that nodes connect as, which has all tenants'' jobs: give the tenant another role, or have nodes connect as another user', role_name, tenant_id
            USING ERRCODE = 'TN008';
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

-- As in 0045, but for the row type.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.make_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most      CONSTANT integer := 2000;
    partition CONSTANT text := to_char(day, '"completed_job_"YYYYMMDD');
    ends      CONSTANT timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    begins    timestamptz := day::timestamp AT TIME ZONE 'UTC';
    strays    integer;
    ranges    regclass;
BEGIN
    IF to_regclass(format('tenure.%I', partition)) IS NOT NULL THEN
        EXECUTE format('LOCK TABLE tenure.%I IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', partition);
        FOR ranges IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
            WHERE i.indrelid = to_regclass(format('tenure.%I', partition)) AND a.amname = 'brin' AND i.indisvalid LOOP
            PERFORM brin_summarize_new_values(ranges);
        END LOOP;
        RETURN;
    END IF;
    LOCK TABLE ONLY tenure.completed_job IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    SELECT count(*) INTO strays FROM (
        SELECT FROM tenure.completed_job_rest r WHERE r.finished_at >= begins AND r.finished_at < ends LIMIT most + 1) s;
    IF strays > most THEN
        begins := greatest(begins, date_trunc('minute', clock_timestamp()) + interval '2 minutes');
        IF begins >= ends THEN
            RETURN;
        END IF;
    END IF;
    EXECUTE format('CREATE TABLE tenure.%I (LIKE tenure.completed_job INCLUDING ALL)', partition);
    EXECUTE format('REVOKE USAGE ON TYPE tenure.%I FROM PUBLIC', partition);
    EXECUTE format('ALTER TABLE tenure.%I REPLICA IDENTITY FULL', partition);
    FOR ranges IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
            WHERE i.indrelid = to_regclass(format('tenure.%I', partition)) AND a.amname = 'brin' AND i.indisvalid LOOP
        EXECUTE format('ALTER INDEX %s SET (autosummarize = off)', ranges);
    END LOOP;
    IF strays BETWEEN 1 AND most THEN
        EXECUTE format('WITH strays AS (DELETE FROM tenure.completed_job_rest r WHERE r.finished_at >= $1 AND r.finished_at < $2 RETURNING *)
            INSERT INTO tenure.%I SELECT * FROM strays', partition) USING begins, ends;
    END IF;
    EXECUTE format('ALTER TABLE tenure.completed_job ATTACH PARTITION tenure.%I FOR VALUES FROM (%L) TO (%L)',
        partition, to_char(begins AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI"+00"'), to_char(ends AT TIME ZONE 'UTC', 'YYYY-MM-DD" 00:00+00"'));
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    of_table regclass;
BEGIN
    FOR of_table IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p', 'v') LOOP
        EXECUTE format('REVOKE USAGE ON TYPE %s FROM PUBLIC', of_table);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
SELECT 1; -- programs of before go on with these
