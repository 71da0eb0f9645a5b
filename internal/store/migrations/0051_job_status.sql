-- tenure.job_status tells nobody of others' jobs, by way of plans either: conditions that Postgres evaluates before a row is known
-- to be the caller's, as it does with equality, had EXPLAIN ANALYZE count other tenants' jobs by tenant, kind or
-- queue. And nobody can ask which role is which tenant's. Adds a table with one row and a view, replaces another, and locks nothing
-- that others wait for. Programs of before go on working.

-- +goose Up

-- What only the view can read, with its owner's rights: who passes it to tenure.seen_by is the view, which says who looks.
CREATE TABLE tenure.view_key (key uuid NOT NULL DEFAULT gen_random_uuid());
REVOKE USAGE ON TYPE tenure.view_key FROM PUBLIC;
INSERT INTO tenure.view_key DEFAULT VALUES;

-- Whose jobs a caller may see: those of all tenants but some, or of some alone. Who has the privilege to SELECT from
-- tenure.job sees all; others those of the tenants whose role they are, or have the rights of.
-- +goose StatementBegin
CREATE FUNCTION tenure.seen_by(caller text, key uuid, OUT every boolean, OUT tenants text[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pattern CONSTANT text := (SELECT t.role_name FROM tenure.tenant_role t WHERE t.tenant_id = '');
    before  CONSTANT text := split_part(pattern, '{tenant}', 1);
    behind  CONSTANT text := split_part(pattern, '{tenant}', 2);
BEGIN
    IF NOT EXISTS (SELECT FROM tenure.view_key k WHERE k.key = seen_by.key) THEN
        RAISE EXCEPTION 'tenure.seen_by is called by tenure.job_status alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    every := has_table_privilege(caller, 'tenure.job'::regclass, 'SELECT');
    IF every THEN
        tenants := '{}';
        RETURN;
    END IF;
    -- A pattern that is one role for all: those are seen that have no other one.
    every := strpos(coalesce(pattern, '{tenant}'), '{tenant}') = 0 AND EXISTS (SELECT FROM pg_roles r WHERE r.rolname = pattern AND pg_has_role(caller, r.oid, 'USAGE'));
    SELECT coalesce(array_agg(f.tenant_id), '{}') INTO tenants FROM (
        SELECT t.tenant_id FROM tenure.tenant_role t LEFT JOIN pg_roles r ON r.rolname = t.role_name
        WHERE t.tenant_id <> '' AND coalesce(pg_has_role(caller, r.oid, 'USAGE'), false) <> every
        UNION ALL
        SELECT named.tenant_id
        FROM pg_roles r CROSS JOIN LATERAL (
            SELECT substr(r.rolname, length(before) + 1, length(r.rolname) - length(before) - length(behind)) AS tenant_id) named
        WHERE strpos(pattern, '{tenant}') > 0 AND replace(pattern, '{tenant}', named.tenant_id) = r.rolname AND pg_has_role(caller, r.oid, 'USAGE')
          AND NOT EXISTS (SELECT FROM tenure.tenant_role t WHERE t.tenant_id = named.tenant_id)) f;
END
$$;
-- +goose StatementEnd

-- What job_status of 0035 was, for who looks.
CREATE VIEW tenure.job_seen WITH (security_barrier) AS
SELECT s.*, s.state NOT IN ('dead', 'done', 'business_error', 'cancelled') AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = s.id) AS cancelling
FROM (
    SELECT j.id, j.tenant_id, j.kind, j.queue,
           CASE WHEN c.turn IS NULL THEN 'waiting' WHEN c.started_at IS NULL THEN 'claimed' ELSE 'running' END AS state,
           j.priority, j.attempt, j.max_attempts, j.created_at, NULL::timestamptz AS due_at, NULL::text AS error, j.unique_key, j.correlation_id
    FROM tenure.job j
    LEFT JOIN (SELECT run.id, claim.turn, claim.started_at
               FROM tenure.claim CROSS JOIN LATERAL unnest(claim.job_ids) AS run (id)) c ON c.id = j.id AND c.turn = j.turn
    UNION ALL
    SELECT id, tenant_id, kind, queue, CASE WHEN due_at = tenure.never() THEN 'awaiting' WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END,
           priority, attempt, max_attempts, created_at, nullif(due_at, tenure.never()),
           (SELECT e.error FROM tenure.job_error e WHERE e.job_id = t.id ORDER BY e.at DESC LIMIT 1), unique_key, correlation_id
    FROM tenure.timer_job t
    UNION ALL
    SELECT id, tenant_id, kind, queue, CASE WHEN lock_expires_at > clock_timestamp() THEN 'locked' WHEN due_at IS NULL OR due_at <= clock_timestamp() THEN 'waiting'
                                            WHEN attempt = 0 THEN 'scheduled' ELSE 'retrying' END,
           priority, attempt, max_attempts, created_at, due_at,
           CASE WHEN attempt > 0 THEN (SELECT e.error FROM tenure.job_error e WHERE e.job_id = x.id ORDER BY e.at DESC LIMIT 1) END, unique_key, correlation_id
    FROM tenure.external_job x
    UNION ALL
    SELECT id, tenant_id, kind, queue, 'suspended', priority, attempt, max_attempts, created_at, nullif(due_at, tenure.never()), NULL, unique_key, correlation_id
    FROM tenure.suspended_job
    UNION ALL
    SELECT id, tenant_id, kind, queue, 'dead', priority, attempt, max_attempts, created_at, NULL, error, unique_key, correlation_id
    FROM tenure.dead_letter_job
    UNION ALL
    SELECT id, tenant_id, kind, queue, outcome, priority, attempt, NULL, created_at, NULL, NULL, unique_key, correlation_id
    FROM tenure.completed_job) s
WHERE (SELECT v.every FROM tenure.view_key k, LATERAL tenure.seen_by(current_user, k.key) v)
   <> (s.tenant_id = ANY ((SELECT v.tenants FROM tenure.view_key k, LATERAL tenure.seen_by(current_user, k.key) v)::text[]));
REVOKE USAGE ON TYPE tenure.job_seen FROM PUBLIC;

-- Of a job only the id is compared before it is known whose it is. All else is an expression of which Postgres does not
-- believe that it tells nothing, so that conditions on it stay outside of tenure.job_seen, and has no statistics.
CREATE OR REPLACE VIEW tenure.job_status (id, tenant, kind, queue, state, cancelling, priority, attempt, max_attempts, created_at, due_at, error, unique_key, correlation_id)
    WITH (security_barrier) AS
SELECT id, substr(tenant_id, 1), substr(kind, 1), substr(queue, 1), substr(state, 1), cancelling::text::boolean, priority::text::smallint, attempt::text::smallint,
       max_attempts::text::smallint, created_at + interval '0', due_at + interval '0', substr(error, 1), substr(unique_key, 1), substr(correlation_id, 1)
FROM tenure.job_seen;

-- +goose StatementBegin
DO $$
DECLARE
    owner CONSTANT text := (SELECT quote_ident(pg_get_userbyid(c.relowner)) FROM pg_class c WHERE c.oid = 'tenure.job_status'::regclass);
BEGIN
    REVOKE EXECUTE ON FUNCTION tenure.job_allowed FROM PUBLIC; -- the door's functions call it, with the owner's rights
    IF owner <> quote_ident(current_user) THEN
        EXECUTE format('ALTER FUNCTION tenure.seen_by OWNER TO %s', owner);
        EXECUTE format('ALTER TABLE tenure.view_key OWNER TO %s', owner);
        EXECUTE format('ALTER VIEW tenure.job_seen OWNER TO %s', owner);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
GRANT EXECUTE ON FUNCTION tenure.job_allowed TO PUBLIC; -- what this made stays: 0035's view is replaced by the older steps
