-- Why what a row of tenure.door asks for cannot be a job; null when it can. meta has the tags in it.
CREATE OR REPLACE FUNCTION tenure.enqueue_fault(asked record) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    longest CONSTANT integer := 1048576; -- of JSON, written out: numbers such as 1e300 unfold
    name    CONSTANT text := '^[A-Za-z0-9][A-Za-z0-9._:/-]*$'; -- a bound such as {0,127} in it takes milliseconds
    tags    CONSTANT jsonb := asked.meta->'tenure:tags';
BEGIN
    RETURN CASE
        WHEN asked.tenant IS NULL OR octet_length(asked.tenant) NOT BETWEEN 1 AND 128 OR asked.tenant ~ '^\s|\s$|[[:cntrl:]]'
            THEN 'tenant: 1 to 128 bytes are allowed, without control characters and white space at either end'
        WHEN asked.kind IS NULL OR octet_length(asked.kind) > 128 OR asked.kind COLLATE "C" !~ name
            THEN CASE asked.call WHEN 'enqueue_external' THEN 'topic' ELSE 'kind' END || ': 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit'
        WHEN octet_length(asked.queue) > 128 OR asked.queue COLLATE "C" !~ name
            THEN 'queue: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit'
        WHEN asked.payload IS NULL OR octet_length(asked.payload::text) > longest
            THEN 'payload: JSON is needed, of at most 1 MiB when it is written out; store the data elsewhere and pass its key'
        WHEN octet_length(asked.meta::text) > longest THEN 'meta: JSON of at most 1 MiB when it is written out is allowed'
        WHEN asked.priority IS NULL OR asked.priority NOT BETWEEN -1000 AND 1000 THEN 'priority: -1000 to 1000 are allowed'
        WHEN asked.max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts: 1 to 1000 are allowed'
        WHEN octet_length(asked.correlation_id) > 1024 THEN 'correlation_id: at most 1024 bytes are allowed'
        WHEN octet_length(asked.unique_key) NOT BETWEEN 1 AND 1024 THEN 'unique_key: 1 to 1024 bytes are allowed'
        WHEN asked.run_at IS NOT NULL AND asked.delay IS NOT NULL THEN 'run_at and delay: only one of them is allowed'
        WHEN asked.run_at < '1969-12-31 00:00+00' OR asked.run_at > '10000-01-02 00:00+00' THEN 'run_at: years 1970 to 9999 are allowed'
        WHEN asked.delay NOT BETWEEN interval '0' AND interval '3660 days' THEN 'delay: 0 to 3660 days are allowed'
        WHEN octet_length(asked.exclusive_key) NOT BETWEEN 1 AND 1024 THEN 'exclusive_key: 1 to 1024 bytes are allowed'
        WHEN asked.timeout NOT BETWEEN interval '1 ms' AND interval '2147483647 ms' THEN 'timeout: 1 ms to 24 days are allowed'
        WHEN asked.unique_for IS NOT NULL AND asked.unique_key IS NULL THEN 'unique_for: a unique_key is needed, which it holds for'
        WHEN asked.unique_for NOT BETWEEN interval '1 s' AND interval '3660 days' THEN 'unique_for: 1 second to 3660 days are allowed'
        WHEN tags IS NULL THEN NULL
        WHEN jsonb_typeof(tags) <> 'array' THEN 'tags: meta is an object in which tenure:tags is a list of tags, or is not there'
        WHEN jsonb_array_length(tags) > 16 OR EXISTS (
            SELECT FROM jsonb_array_elements(tags) AS t (tag) WHERE jsonb_typeof(tag) <> 'string' OR octet_length(tag #>> '{}') NOT BETWEEN 1 AND 64)
            THEN 'tags: at most 16, each of 1 to 64 bytes, are allowed'
    END;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_fault(record) FROM PUBLIC;
