-- Leads from a job's tags to the job.
CREATE OR REPLACE FUNCTION tenure.index_tags(tenant text, id bigint, tags jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenure.job_tag (tenant_id, tag, job_id)
    SELECT DISTINCT tenant, t.tag, id FROM jsonb_array_elements_text(tags) AS t (tag)
    ON CONFLICT ON CONSTRAINT job_tag_pkey DO UPDATE SET gone_at = NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.index_tags FROM PUBLIC;
