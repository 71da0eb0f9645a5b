-- Up to where the sequences are behind what stands in the tables; null: they are not. The
-- tables are read first, so that what is inserted meanwhile does not look like it.
CREATE OR REPLACE FUNCTION tenure.sequences_behind(OUT id bigint, OUT place bigint)
    LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
    id := tenure.highest_id();
    place := tenure.highest_position();
    IF id < (SELECT last_value + is_called::integer FROM tenure.job_id) THEN
        id := NULL;
    END IF;
    IF place < (SELECT last_value + is_called::integer FROM tenure.job_position) THEN
        place := NULL;
    END IF;
END
$$;
