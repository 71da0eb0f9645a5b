-- What is wrong with a job's options that tenure.enqueue_fault does not know; null: nothing. meta has
-- the tags in it.
CREATE OR REPLACE FUNCTION tenure.options_fault(meta jsonb, exclusive_key text, timeout interval, unique_key text, unique_for interval) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    tags CONSTANT jsonb := meta->'tenure:tags';
BEGIN
    RETURN CASE
        WHEN octet_length(exclusive_key) NOT BETWEEN 1 AND 1024 THEN 'exclusive_key: 1 to 1024 bytes are allowed'
        WHEN timeout NOT BETWEEN interval '1 ms' AND interval '2147483647 ms' THEN 'timeout: 1 ms to 24 days are allowed'
        WHEN unique_for IS NOT NULL AND unique_key IS NULL THEN 'unique_for: a unique_key is needed, which it holds for'
        WHEN unique_for NOT BETWEEN interval '1 s' AND interval '3660 days' THEN 'unique_for: 1 second to 3660 days are allowed'
        WHEN tags IS NULL THEN NULL
        WHEN jsonb_typeof(tags) <> 'array' THEN 'tags: meta is an object in which tenure:tags is a list of tags, or is not there'
        WHEN jsonb_array_length(tags) > 16 OR EXISTS (
            SELECT FROM jsonb_array_elements(tags) AS t (tag) WHERE jsonb_typeof(tag) <> 'string' OR octet_length(tag #>> '{}') NOT BETWEEN 1 AND 64)
            THEN 'tags: at most 16, each of 1 to 64 bytes, are allowed'
    END;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.options_fault FROM PUBLIC;
