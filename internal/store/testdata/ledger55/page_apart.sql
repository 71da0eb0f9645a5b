-- Prints payload and meta of jobs, but for those that are too large. Postgres takes seconds
-- to print 100 MB, cannot be interrupted meanwhile, and fails at 1 GB. So what a job comes to
-- at least is found out first: a fifth of the bytes that it has in memory, and of each
-- number the digits before and after its point, which the head of its binary form tells.
-- What passes prints as a few times $2 at most. This costs several times as much as printing
-- ordinary jobs does.
-- $1 ids, $2 the most bytes of a job, $3 of all of them; no payload: it comes to more. bytes:
-- as printed, or what it comes to at least.
SELECT sized.id, sized.bytes,
       CASE WHEN sized.shown THEN sized.payload END AS payload, CASE WHEN sized.shown THEN sized.meta END AS meta
FROM (
    SELECT printed.*, size.bytes, size.bytes <= $2::bigint
           AND sum(CASE WHEN size.bytes <= $2::bigint THEN size.bytes END) OVER (ROWS UNBOUNDED PRECEDING) <= $3::bigint AS shown
    FROM (
        SELECT j.id, raw.bytes AS raw, digits.bytes AS digits,
               CASE WHEN digits.bytes <= $2::bigint THEN j.payload::text END AS payload,
               CASE WHEN digits.bytes <= $2::bigint THEN j.meta::text END AS meta
        FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (id, n)
        JOIN tenure.job j ON j.id = asked.id
        CROSS JOIN LATERAL (
            SELECT pg_column_size(j.payload #> '{}')::bigint + coalesce(pg_column_size(j.meta #> '{}'), 0) AS bytes
            OFFSET 0) raw
        CROSS JOIN LATERAL (
            SELECT CASE WHEN raw.bytes / 5 <= $2::bigint THEN (
                SELECT coalesce(sum(
                    CASE WHEN get_byte(head, 2) < 128 THEN 4 * (256 * get_byte(head, 2) + get_byte(head, 3)) ELSE 0 END + 1
                    + 256 * get_byte(head, 6) + get_byte(head, 7)), 0)
                FROM (SELECT numeric_send(number::numeric) FROM jsonb_array_elements(jsonb_path_query_array(j.payload, 'strict $.** ? (@.type() == "number")')) AS number
                      UNION ALL
                      SELECT numeric_send(number::numeric) FROM jsonb_array_elements(jsonb_path_query_array(j.meta, 'strict $.** ? (@.type() == "number")')) AS number) AS numbers (head))
            END AS bytes
            OFFSET 0) digits
        ORDER BY asked.n
        OFFSET 0) printed
    CROSS JOIN LATERAL (
        SELECT coalesce(octet_length(printed.payload)::bigint + coalesce(octet_length(printed.meta), 0),
                        greatest(printed.raw / 5, printed.digits)) AS bytes) size) sized;
