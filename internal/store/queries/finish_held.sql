-- Those of some jobs that stand with their turn and that somebody has locked. The others
-- are locked for a moment by this statement, which waits for nobody. $1 ids, $2 turns.
WITH standing AS MATERIALIZED (
    SELECT j.id FROM unnest($1::bigint[], $2::integer[]) AS said (id, turn)
    JOIN tenure.job j ON j.id = said.id AND j.turn = said.turn),
free AS MATERIALIZED (
    SELECT j.id FROM standing JOIN tenure.job j USING (id)
    FOR UPDATE OF j SKIP LOCKED)
SELECT id FROM standing WHERE id NOT IN (SELECT id FROM free);
