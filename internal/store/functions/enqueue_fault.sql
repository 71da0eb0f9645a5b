-- Why this cannot be a job; null when it can.
CREATE OR REPLACE FUNCTION tenure.enqueue_fault(tenant text, kind text, payload jsonb, queue text, priority integer, run_at timestamptz,
        delay interval, max_attempts integer, meta jsonb, correlation_id text, unique_key text) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    longest CONSTANT integer := 1048576; -- of JSON, written out: numbers such as 1e300 unfold
    name    CONSTANT text := '^[A-Za-z0-9][A-Za-z0-9._:/-]*$'; -- a bound such as {0,127} in it takes milliseconds
BEGIN
    RETURN CASE
        WHEN tenant IS NULL OR octet_length(tenant) NOT BETWEEN 1 AND 128 OR tenant ~ '^\s|\s$|[[:cntrl:]]'
            THEN 'tenant: 1 to 128 bytes are allowed, without control characters and white space at either end'
        WHEN kind IS NULL OR octet_length(kind) > 128 OR kind COLLATE "C" !~ name
            THEN 'kind: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit'
        WHEN queue IS NULL OR octet_length(queue) > 128 OR queue COLLATE "C" !~ name
            THEN 'queue: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit'
        WHEN payload IS NULL OR octet_length(payload::text) > longest
            THEN 'payload: JSON is needed, of at most 1 MiB when it is written out; store the data elsewhere and pass its key'
        WHEN octet_length(meta::text) > longest THEN 'meta: JSON of at most 1 MiB when it is written out is allowed'
        WHEN priority IS NULL OR priority NOT BETWEEN -1000 AND 1000 THEN 'priority: -1000 to 1000 are allowed'
        WHEN max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts: 1 to 1000 are allowed'
        WHEN octet_length(correlation_id) > 1024 THEN 'correlation_id: at most 1024 bytes are allowed'
        WHEN octet_length(unique_key) NOT BETWEEN 1 AND 1024 THEN 'unique_key: 1 to 1024 bytes are allowed'
        WHEN run_at IS NOT NULL AND delay IS NOT NULL THEN 'run_at and delay: only one of them is allowed'
        WHEN run_at < '1969-12-31 00:00+00' OR run_at > '10000-01-02 00:00+00' THEN 'run_at: years 1970 to 9999 are allowed'
        WHEN delay NOT BETWEEN interval '0' AND interval '3660 days' THEN 'delay: 0 to 3660 days are allowed'
    END;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.enqueue_fault FROM PUBLIC;
