-- Says at the door who calls, before tenure.answer does what is asked. It has its caller's rights, else it would see the owner; and
-- it overwrites what stands there, as a tenant may make a view on the door whose columns have other defaults.
CREATE OR REPLACE FUNCTION tenure.name_caller() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.caller := current_user;
    RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION tenure.name_caller FROM PUBLIC;
