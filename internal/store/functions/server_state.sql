-- server: the same for a primary and its standbys, and another for a restored dump or after
-- an upgrade to another major version. Without the system identifier it is made of what only
-- a physical copy has in common: object ids, and the transaction that began the ledger.
--
-- timeline: which promotion the server follows; 0: it is a standby. Read without a position,
-- which pg_walfile_name does not look at for that. Where it cannot be read, refused says why,
-- and the timeline is 1 if the storage keeps commits, and else null.
--
-- Executed as the owner, who may be allowed more than the user that connects, and for those
-- only who may read tenure.pool, as tenants' roles may not. What a server does not have, or does
-- not support, it says with one of these conditions; anything else, such as a lack of memory,
-- is an error and no answer.
CREATE OR REPLACE FUNCTION tenure.server_state(OUT server text, OUT timeline integer, OUT refused text, OUT owner text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END,
                               'tenure.pool', 'SELECT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'which server this is, is for those who may read tenure.pool';
    END IF;
    owner := current_user;
    BEGIN
        server := (SELECT c.system_identifier::text FROM pg_control_system() c);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR internal_error THEN
        server := 'ledger-' || md5(concat_ws('/', current_setting('server_version_num')::integer / 10000,
            (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), 'tenure.acquire_lock'::regclass::oid,
            (SELECT m.xmin FROM tenure.migration m ORDER BY m.id LIMIT 1)));
    END;
    timeline := 0;
    IF pg_is_in_recovery() THEN
        RETURN;
    END IF;
    BEGIN
        timeline := ('x' || left(pg_walfile_name('0/1'), 8))::bit(32)::integer;
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR internal_error THEN
        refused := SQLERRM;
        timeline := CASE WHEN EXISTS (SELECT FROM tenure.pool p WHERE p.storage_keeps_commits)
                           OR to_regproc('pg_catalog.aurora_version') IS NOT NULL THEN 1 END;
    END;
END
$$;
