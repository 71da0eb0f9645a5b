-- The value, or, if it cannot be read, what is wrong with it. Not in SQL: PostgreSQL 18 reads a value as
-- it plans such a function, and fails.
CREATE OR REPLACE FUNCTION tenure.legible(value jsonb, printed boolean DEFAULT false) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    damage text := tenure.damage(value, printed);
BEGIN
    IF damage IS NULL THEN
        RETURN value;
    END IF;
    RETURN jsonb_build_object('tenure:damaged', damage);
END
$$;
