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
REVOKE EXECUTE ON FUNCTION tenure.calls_itself FROM PUBLIC;
