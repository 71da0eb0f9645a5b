-- A statement makes a call itself only if the call stands where Postgres reads code. 0035 took literals and comments out
-- of the text to see that, and knew not all that Postgres has: E'\'', dollar quotes, comments within comments. Now the
-- text is read from its beginning to the call, and the call counts if all before it is certain. What a trigger
-- calls never counts. Replaces functions, and locks nothing that others wait for. Programs of before go on working.

-- +goose Up

-- Whether who executes this may use all of his rights: when the statement that his client sent calls one of
-- these functions itself, or when a function calls it that is executed with the rights of its owner,
-- who answers for it. What a statement only comes across, such as a trigger, a view or an expression of
-- a table, may be a tenant's: it acts for the tenant whose role executes it, and for nobody else. Where
-- no tenant has a role there is nobody to be kept apart. settle_awaited is the holder's, and cancels.
--
-- Before the call may stand: what opens nothing, literals without a backslash, which are the same whatever
-- standard_conforming_strings says, names in quotes, parameters, comments without another one in them, and
-- what opens the block of a DO. Each begins with other characters, so there is one way to read a text, which is
-- Postgres' own. Anything else ends the reading, and nothing behind it counts. \x22 and \x27 are the quotes.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.calls_itself(caller text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN caller <> CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END
        OR pg_trigger_depth() <= 1 -- the door's own
           AND current_query() ~* ($re$^[ \t\n\r\f\v]*(?:do[ \t\n\r\f\v]+(?:language[ \t\n\r\f\v]+plpgsql[ \t\n\r\f\v]+)?[$][a-z_]*[$])?$re$
               || $re$(?:[^\x22\x27$/-]|\x27[^\x27\\]*\x27|\x22[^\x22]*\x22|[$]\d|--[^\n\r]*[\n\r]|-(?!-)|/[*](?:[^*/]|[*]+[^*/]|/+[^*/])*[*]+/|/(?![*]))*$re$
               || $re$[ \t\n\r\f\v(,;=](?:tenure|\x22tenure\x22)[ \t\n\r\f\v]*[.][ \t\n\r\f\v]*$re$
               || $re$(?:door\M|\x22door\x22|(?:\x22(?:enqueue|enqueue_external|enqueue_linked|cancel|retry|settle_awaited)\x22|enqueue|enqueue_external|enqueue_linked|cancel|retry|settle_awaited)[ \t\n\r\f\v]*[(])$re$)
        OR NOT EXISTS (SELECT FROM tenure.tenant_role);
END
$$;
-- +goose StatementEnd

-- As in 0035, but for the hint.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tenure.enqueue_raise(caller text, tenant text, refused text, other_pool text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    CASE refused
    WHEN 'wrong pool' THEN
        RAISE EXCEPTION 'the ledger in database % has no number yet', current_database()
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run: tenure migrate';
    WHEN 'forbidden' THEN
        RAISE EXCEPTION 'role % may not enqueue for tenant %', caller, tenant
            USING ERRCODE = 'insufficient_privilege',
                  HINT = CASE WHEN tenure.calls_itself(caller)
                      THEN 'Which role is a tenant''s stands in tenure.tenant_role, which tenure migrate --grants fills from the configuration.'
                      ELSE 'A function, trigger or view that the statement did not write itself enqueues for the tenant whose role executes it. '
                           'To enqueue for others, make it a function with SECURITY DEFINER, and its owner another user than this one, who may. '
                           'In a statement that makes the call itself, write it before dollar quotes, comments within comments, and literals with a backslash.' END;
    WHEN 'moved' THEN
        RAISE EXCEPTION 'tenant % has moved to pool %', tenant, other_pool USING ERRCODE = 'TN003', DETAIL = other_pool;
    WHEN 'held' THEN
        RAISE EXCEPTION 'tenant % is held while its data is copied to pool %', tenant, other_pool USING ERRCODE = 'TN004', DETAIL = other_pool;
    WHEN 'arriving' THEN
        RAISE EXCEPTION 'tenant % is being moved into this pool', tenant
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again when it has arrived.';
    WHEN 'quota' THEN
        RAISE EXCEPTION 'tenant % has % jobs waiting, as many as it may', tenant, other_pool
            USING ERRCODE = 'TN006', HINT = format('Try again when some have run, or raise the quota: tenure tenants limit %s --max-waiting N', tenant);
    ELSE
        RAISE EXCEPTION 'the unique key was taken by a transaction that cannot be seen yet'
            USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
    END CASE;
END
$$;
-- +goose StatementEnd

-- +goose Down
SELECT 1; -- programs of before go on with these
