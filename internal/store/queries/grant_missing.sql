-- The statements that give the user $1, or with null the one who asks, what it needs of the
-- ledger and has not; none when there is no ledger. Asking needs no right. $2: what for,
-- 'run' jobs, as nodes and operators do, or only 'enqueue'. What is needed is named one by
-- one: whatever else stands in the schema, such as a copy of a table, a day that was
-- detached, or a function of another name, is not this program's business. Finished
-- jobs' days are reached through the table they are part of, and the sequence of an identity
-- column through its table. history_job only programs of the release before ask for. The functions within tenure.enqueue are its owner's to call.
WITH grantee AS (SELECT oid, rolname FROM pg_roles WHERE rolname = coalesce($1::text, current_user)),
ledger AS (SELECT oid FROM pg_namespace WHERE nspname = 'tenure'),
tables (name, privileges) AS (
    SELECT name, CASE WHEN $2::text = 'run' AND name = 'audit' THEN '{SELECT,INSERT}'::text[]
                      WHEN $2::text = 'run' AND name NOT IN ('pool', 'migration', 'function_text', 'runtime_user') THEN '{SELECT,INSERT,UPDATE,DELETE}'::text[]
                      WHEN $2::text = 'run' OR name IN ('pool', 'migration', 'tenant', 'kind_queue') THEN '{SELECT}' END
    FROM unnest('{pool,migration,incarnation,acquire_lock,node_session,claim,cancel_request,
                  job,timer_job,external_job,history_job,suspended_job,dead_letter_job,completed_job,completed_job_rest,
                  job_error,job_report,job_tag,unique_job,unique_period,schedule,tenant,tenant_role,awaiting,awaited,awaited_end,job_limit,rate_bucket,frozen,seen_tenant,operation,lock_change,audit,external_gate,kind_queue,runtime_user,function_text}'::text[]) AS name),
sequences (name, privileges) AS (
    SELECT name, '{USAGE,SELECT,UPDATE}'::text[]
    FROM unnest('{job_id,job_position,incarnation_moment}'::text[]) AS name
    WHERE $2::text = 'run'),
functions (name) AS (
    SELECT name FROM unnest('{enqueue,enqueue_external,enqueue_linked,enter_tenant,begin_tenant,server_state,
                              require_claim,finish_in_tx,finish_batch_in_tx,write_reports,is_unfinished,never,is_awaiting,note_ends,
                              settle_awaited,awaited_ends,note_missed_ends,incarnation,first_turn,begin_incarnation,make_day,empty_day,
                              drop_day,trim_audit,open_external,shut_external,tenant_of_role,unanswered,cancel,retry,damage,legible,
                              external_next,external_room,write_reports_in_tx,require_database,close_dblink,seen_by}'::text[]) AS name
    WHERE $2::text = 'run' OR name IN ('enqueue', 'enqueue_external', 'enqueue_linked', 'unanswered', 'first_turn', 'enter_tenant', 'begin_tenant', 'server_state')),
wanted (part, kind, object, privilege, n, granted) AS MATERIALIZED (
    SELECT 1, 'SCHEMA ', 'tenure', 'USAGE', 1, has_schema_privilege(g.oid, l.oid, 'USAGE')
    FROM grantee g, ledger l
    UNION ALL
    SELECT 2, '', format('tenure.%I', c.relname), p.name, p.n, has_table_privilege(g.oid, c.oid, p.name)
    FROM grantee g, tables t, ledger l JOIN pg_class c ON c.relnamespace = l.oid,
         unnest(t.privileges) WITH ORDINALITY AS p (name, n)
    WHERE c.relname = t.name AND c.relkind IN ('r', 'p')
    UNION ALL
    SELECT 3, 'SEQUENCE ', format('tenure.%I', c.relname), p.name, p.n, has_sequence_privilege(g.oid, c.oid, p.name)
    FROM grantee g, sequences s, ledger l JOIN pg_class c ON c.relnamespace = l.oid,
         unnest(s.privileges) WITH ORDINALITY AS p (name, n)
    WHERE c.relname = s.name AND c.relkind = 'S'
    UNION ALL
    SELECT 4, 'FUNCTION ', format('tenure.%I(%s)', f.proname, pg_get_function_identity_arguments(f.oid)), 'EXECUTE', 1,
           has_function_privilege(g.oid, f.oid, 'EXECUTE')
    FROM grantee g, functions w, ledger l JOIN pg_proc f ON f.pronamespace = l.oid
    WHERE f.proname = w.name
    UNION ALL -- what may be asked at the door; who asks is nobody's to say
    SELECT 2, '', 'tenure.door', format(v.privileges, v.columns), 1, v.granted
    FROM grantee g, ledger l JOIN pg_class c ON c.relnamespace = l.oid AND c.relname = 'door', LATERAL (
        SELECT p.privilege || ' (%s)', string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum), bool_and(has_column_privilege(g.oid, c.oid, a.attnum, p.privilege))
        FROM (VALUES ('INSERT', false), ('SELECT', true)) AS p (privilege, answers), pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attname <> 'caller' AND p.answers = (a.attname = ANY ('{id,duplicate,refused,other_pool,answer}'))
        GROUP BY p.privilege) AS v (privileges, columns, granted)),
missing AS (
    SELECT part, kind, object, string_agg(privilege, ', ' ORDER BY n) AS privileges
    FROM wanted WHERE NOT granted GROUP BY part, kind, object)
SELECT format('GRANT %s ON %s%s TO %I', m.privileges, m.kind, string_agg(m.object, ', ' ORDER BY m.object), g.rolname)
FROM missing m, grantee g
GROUP BY m.part, m.kind, m.privileges, g.rolname
ORDER BY m.part, m.privileges;
