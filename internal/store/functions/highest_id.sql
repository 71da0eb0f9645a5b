-- The highest id among the unfinished jobs that were made in this pool.
CREATE OR REPLACE FUNCTION tenure.highest_id() RETURNS bigint
    LANGUAGE sql STABLE SET search_path = '' AS $$
    SELECT greatest(
        own.first,
        (SELECT max(id) FROM tenure.job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.timer_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.external_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.history_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.suspended_job WHERE id < own.first + (1::bigint << 46)),
        (SELECT max(id) FROM tenure.dead_letter_job WHERE id < own.first + (1::bigint << 46)))
    FROM (SELECT number::bigint << 47 AS first FROM tenure.pool) AS own;
$$;
