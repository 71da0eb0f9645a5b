-- Schedules: the table was there from the first ledger on, and nothing was ever in it. Its key
-- becomes tenant and name, and it gets what a schedule needs besides. An index is added; all on an
-- empty table that no earlier program touches.

-- +goose Up

ALTER TABLE tenure.schedule
    DROP CONSTRAINT schedule_pkey,
    ALTER COLUMN name TYPE text COLLATE "C",
    ADD PRIMARY KEY (tenant_id, name),
    ADD COLUMN origin       text        NOT NULL DEFAULT 'set' CHECK (origin IN ('set', 'config', 'every')), -- by API or command line; from the configuration; a tenant's copy of one for every tenant
    ADD COLUMN since        timestamptz NOT NULL DEFAULT clock_timestamp(), -- when its times became what they are
    ADD COLUMN end_at       timestamptz,                                    -- the last time that can be due
    ADD COLUMN missed       text        NOT NULL DEFAULT 'one' CHECK (missed IN ('skip', 'one', 'all')),
    ADD COLUMN waits        boolean     NOT NULL DEFAULT false,             -- for the job before to end
    ADD COLUMN jitter_ms    bigint      NOT NULL DEFAULT 0,                 -- how much later than its times, for every tenant: at most
    ADD COLUMN priority     smallint    NOT NULL DEFAULT 0,
    ADD COLUMN max_attempts smallint,                                       -- null: the kind's
    ADD COLUMN meta         jsonb,
    ADD COLUMN last_job     bigint;

-- For next_at, which is null when nothing is due any more. A schedule for every tenant, whose
-- tenant_id is empty, adds no jobs itself: it is due when tenants are to get their copies of it.
CREATE INDEX schedule_next ON tenure.schedule (next_at) WHERE NOT paused;

-- Whether a job has not come to its end, as which a dead letter counts.
CREATE FUNCTION tenure.is_unfinished(job_id bigint) RETURNS boolean
    LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM tenure.job j WHERE j.id = job_id)
    OR EXISTS (SELECT FROM tenure.timer_job j WHERE j.id = job_id)
    OR EXISTS (SELECT FROM tenure.external_job j WHERE j.id = job_id)
    OR EXISTS (SELECT FROM tenure.suspended_job j WHERE j.id = job_id)
$$;

-- +goose Down
DELETE FROM tenure.schedule;
DROP FUNCTION tenure.is_unfinished(bigint);
DROP INDEX tenure.schedule_next;
ALTER TABLE tenure.schedule
    DROP CONSTRAINT schedule_pkey,
    ADD PRIMARY KEY (name),
    ALTER COLUMN name TYPE text COLLATE "default",
    DROP COLUMN origin,
    DROP COLUMN since,
    DROP COLUMN end_at,
    DROP COLUMN missed,
    DROP COLUMN waits,
    DROP COLUMN jitter_ms,
    DROP COLUMN priority,
    DROP COLUMN max_attempts,
    DROP COLUMN meta,
    DROP COLUMN last_job;
