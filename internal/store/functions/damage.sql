-- What is wrong with a value; null: nothing, it can be read. printed: and be printed.
CREATE OR REPLACE FUNCTION tenure.damage(value jsonb, printed boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF printed THEN
        PERFORM value::text;
    ELSE
        PERFORM value #> '{}';
    END IF;
    RETURN NULL;
EXCEPTION WHEN internal_error OR data_corrupted OR index_corrupted OR program_limit_exceeded THEN
    RETURN SQLERRM;
END
$$;
