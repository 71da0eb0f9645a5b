-- Bounds of what else stands in the ledger, as everything that writes there keeps to: a number at its type's end,
-- a NULL in a list or a time before all others that somebody has set by hand stops statements that are for
-- many rows. Programs of before go on working. It holds the locks of the tables that it changes for a moment.

-- +goose Up
-- Those that break them get the nearest value that does not, jobs in 0044.
UPDATE tenure.schedule SET jitter_ms = least(greatest(jitter_ms, 0), 86400000), next_at = least(greatest(next_at, '1970-01-01 00:00+00'), '9999-12-31 00:00+00')
WHERE jitter_ms NOT BETWEEN 0 AND 86400000 OR next_at NOT BETWEEN '1970-01-01 00:00+00' AND '9999-12-31 00:00+00';
DELETE FROM tenure.rate_bucket WHERE full_at NOT BETWEEN '1970-01-01 00:00+00' AND '9999-12-31 00:00+00';
UPDATE tenure.operation SET next_at = least(greatest(next_at, '1970-01-01 00:00+00'), '9999-12-31 00:00+00')
WHERE next_at NOT BETWEEN '1970-01-01 00:00+00' AND '9999-12-31 00:00+00';
UPDATE tenure.operation SET per_second = NULL WHERE per_second > 1000000000;
UPDATE tenure.claim SET job_ids = coalesce((SELECT array_agg(id ORDER BY n) FROM unnest(job_ids) WITH ORDINALITY AS u (id, n) WHERE id IS NOT NULL), '{}')
WHERE array_ndims(job_ids) > 1 OR EXISTS (SELECT FROM unnest(job_ids) AS id WHERE id IS NULL);
UPDATE tenure.node_session SET kinds = coalesce((SELECT array_agg(kind) FROM unnest(kinds) AS kind WHERE kind IS NOT NULL), '{}')
WHERE array_ndims(kinds) > 1 OR EXISTS (SELECT FROM unnest(kinds) AS kind WHERE kind IS NULL);
UPDATE tenure.node_session SET expires_at = last_seen + interval '366 days' WHERE expires_at > last_seen + interval '366 days';
UPDATE tenure.acquire_lock SET expires_at = renewed_at + interval '366 days' WHERE expires_at > renewed_at + interval '366 days';
UPDATE tenure.tenant SET weight = 100 WHERE weight > 100;

-- NOT VALID: what stands there is mended. A job's bounds leave room for what is counted up.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['job', 'timer_job', 'external_job', 'suspended_job', 'dead_letter_job'] LOOP
        EXECUTE format('ALTER TABLE tenure.%I ADD CONSTRAINT %I CHECK (
            turn BETWEEN 0 AND 2100000000 AND attempt BETWEEN 0 AND 32000 AND losses BETWEEN 0 AND 32000
            AND octet_length(tenant_id) <= 256 AND octet_length(queue) <= 256 AND octet_length(kind) <= 256
            AND octet_length(exclusive_key) <= 1024 AND octet_length(unique_key) <= 1024 AND octet_length(correlation_id) <= 1024) NOT VALID',
            name, name || '_bounds');
    END LOOP;
END
$$;
-- +goose StatementEnd
ALTER TABLE tenure.schedule ADD CONSTRAINT schedule_bounds CHECK (jitter_ms BETWEEN 0 AND 86400000
    AND next_at BETWEEN '1969-12-31 00:00+00' AND '10000-01-02 00:00+00'
    AND octet_length(tenant_id) <= 256 AND octet_length(queue) <= 256 AND octet_length(kind) <= 256) NOT VALID;
ALTER TABLE tenure.rate_bucket ADD CONSTRAINT rate_bucket_bounds CHECK (full_at BETWEEN '1969-12-31 00:00+00' AND '10000-01-02 00:00+00') NOT VALID;
ALTER TABLE tenure.job_limit ADD CONSTRAINT job_limit_bounds CHECK (per_ms <= 31622400000) NOT VALID;
ALTER TABLE tenure.operation ADD CONSTRAINT operation_bounds CHECK (next_at BETWEEN '1969-12-31 00:00+00' AND '10000-01-02 00:00+00'
    AND per_second <= 1000000000) NOT VALID; -- NaN is more than any number
ALTER TABLE tenure.claim ADD CONSTRAINT claim_bounds CHECK (coalesce(array_ndims(job_ids), 1) = 1 AND array_position(job_ids, NULL) IS NULL) NOT VALID;
ALTER TABLE tenure.node_session ADD CONSTRAINT node_session_bounds CHECK (coalesce(array_ndims(kinds), 1) = 1 AND array_position(kinds, NULL) IS NULL
    AND expires_at <= last_seen + interval '366 days' AND hb_seq BETWEEN 0 AND 4000000000000000000) NOT VALID;
ALTER TABLE tenure.acquire_lock ADD CONSTRAINT acquire_lock_bounds CHECK (expires_at <= renewed_at + interval '366 days'
    AND epoch BETWEEN 0 AND 4000000000000000000 AND renew_seq BETWEEN 0 AND 4000000000000000000
    AND removals BETWEEN 0 AND 4000000000000000000 AND limit_changes BETWEEN 0 AND 4000000000000000000) NOT VALID;
ALTER TABLE tenure.tenant ADD CONSTRAINT tenant_bounds CHECK (weight <= 100) NOT VALID;

-- As in 0038, but no SQL function: PostgreSQL 18 reads a value as it plans one, and fails.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.legible(value jsonb, printed boolean DEFAULT false) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    damage text := tenure.damage(value, printed);
BEGIN
    IF damage IS NULL THEN
        RETURN value;
    END IF;
    RETURN jsonb_build_object('tenure:damaged', damage);
END
$$;
-- +goose StatementEnd

-- As in 0012, but that what somebody has made of the day's row type, which everybody may, keeps none: emptied, it leaves
-- the finished jobs, and only its name stays.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.drop_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition text := to_char(day, '"completed_job_"YYYYMMDD');
BEGIN
    LOCK TABLE ONLY tenure.completed_job IN ACCESS EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    EXECUTE format('LOCK TABLE tenure.%I IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    EXECUTE format('DROP TABLE tenure.%I', partition);
EXCEPTION
    WHEN undefined_table THEN
    WHEN dependent_objects_still_exist THEN
        EXECUTE format('ALTER TABLE tenure.completed_job DETACH PARTITION tenure.%I', partition);
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.drop_day(day date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition text := to_char(day, '"completed_job_"YYYYMMDD');
BEGIN
    LOCK TABLE ONLY tenure.completed_job IN ACCESS EXCLUSIVE MODE NOWAIT;
    LOCK TABLE tenure.completed_job_rest IN ACCESS EXCLUSIVE MODE NOWAIT;
    EXECUTE format('LOCK TABLE tenure.%I IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    EXECUTE format('DROP TABLE tenure.%I', partition);
EXCEPTION WHEN undefined_table THEN
END
$$;
-- +goose StatementEnd
ALTER TABLE tenure.tenant DROP CONSTRAINT tenant_bounds;
ALTER TABLE tenure.acquire_lock DROP CONSTRAINT acquire_lock_bounds;
ALTER TABLE tenure.node_session DROP CONSTRAINT node_session_bounds;
ALTER TABLE tenure.claim DROP CONSTRAINT claim_bounds;
ALTER TABLE tenure.operation DROP CONSTRAINT operation_bounds;
ALTER TABLE tenure.job_limit DROP CONSTRAINT job_limit_bounds;
ALTER TABLE tenure.rate_bucket DROP CONSTRAINT rate_bucket_bounds;
ALTER TABLE tenure.schedule DROP CONSTRAINT schedule_bounds;
ALTER TABLE tenure.dead_letter_job DROP CONSTRAINT dead_letter_job_bounds;
ALTER TABLE tenure.suspended_job DROP CONSTRAINT suspended_job_bounds;
ALTER TABLE tenure.external_job DROP CONSTRAINT external_job_bounds;
ALTER TABLE tenure.timer_job DROP CONSTRAINT timer_job_bounds;
ALTER TABLE tenure.job DROP CONSTRAINT job_bounds;
