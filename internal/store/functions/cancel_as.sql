-- What tenure.cancel does for a caller. It takes no lock that others wait for: a job that waits or
-- runs gets a request, for the holder, who ends it when its turn comes, or for its node; one that
-- nobody may claim ends here. One that an external worker has locked ends, too, and its worker finds
-- that out.
CREATE OR REPLACE FUNCTION tenure.cancel_as(caller text, id bigint, keep boolean) RETURNS text
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    tenant   text;
    ended_id bigint;
BEGIN
    FOR look IN 1..3 LOOP -- it may move while it is looked for
        SELECT j.tenant_id INTO tenant FROM (
            SELECT w.tenant_id FROM tenure.job w WHERE w.id = cancel_as.id
            UNION ALL SELECT t.tenant_id FROM tenure.timer_job t WHERE t.id = cancel_as.id
            UNION ALL SELECT x.tenant_id FROM tenure.external_job x WHERE x.id = cancel_as.id
            UNION ALL SELECT s.tenant_id FROM tenure.suspended_job s WHERE s.id = cancel_as.id
            UNION ALL SELECT d.tenant_id FROM tenure.dead_letter_job d WHERE d.id = cancel_as.id) j;
        IF NOT tenure.job_changeable(caller, tenant, 'DELETE') THEN
            RETURN NULL;
        END IF;
        WITH t AS (DELETE FROM tenure.timer_job j WHERE j.id = cancel_as.id RETURNING *),
        x AS (DELETE FROM tenure.external_job j WHERE j.id = cancel_as.id RETURNING *),
        s AS (DELETE FROM tenure.suspended_job j WHERE j.id = cancel_as.id RETURNING *),
        d AS (DELETE FROM tenure.dead_letter_job j WHERE j.id = cancel_as.id RETURNING *),
        gone AS (
            SELECT j.*, cancel_as.keep, NULL::timestamptz AS started_at, NULL::text AS node, nullif(j.origin = 'external_job', false) AS external
            FROM (SELECT {{t.job}}, NULL AS origin FROM t UNION ALL SELECT {{x.job}}, 'external_job' FROM x
                  UNION ALL SELECT {{s.job}}, s.origin FROM s UNION ALL SELECT {{d.job}}, d.origin FROM d) j),
        {{cancelled}}
        SELECT e.id INTO ended_id FROM ended e;
        IF ended_id IS NOT NULL THEN
            PERFORM tenure.note_ends(ARRAY[ended_id], 'cancelled');
            RETURN 'cancelled';
        END IF;
        INSERT INTO tenure.cancel_request (job_id) SELECT j.id FROM tenure.job j WHERE j.id = cancel_as.id
        ON CONFLICT DO NOTHING;
        IF EXISTS (SELECT FROM tenure.job j WHERE j.id = cancel_as.id) THEN
            RETURN 'cancelling';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.cancel_as FROM PUBLIC;
