-- When a timer is due whose time is not known: a job that awaits others. Programs of before take it
-- for a time like any other, which is why it is one that they can count to.
CREATE OR REPLACE FUNCTION tenure.never() RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT timestamptz '2300-01-01 00:00:00.000046+00' $$;
