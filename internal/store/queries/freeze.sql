-- Freezes or thaws a queue or kind, between removal_lock and limit_count, and says whether that changes anything: of what was
-- frozen already it stays known since when. $1 'queue' or 'kind', $2 its name, $3 whether it is to be frozen.
WITH thawed AS (DELETE FROM tenure.frozen WHERE scope = $1::text AND name = $2::text AND NOT $3::boolean RETURNING name),
frozen AS (
    INSERT INTO tenure.frozen (scope, name) SELECT $1, $2 WHERE $3
    ON CONFLICT (scope, name) DO NOTHING
    RETURNING name)
SELECT EXISTS (SELECT FROM thawed) OR EXISTS (SELECT FROM frozen);
