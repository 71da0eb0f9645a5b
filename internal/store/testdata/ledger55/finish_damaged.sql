-- Which of some runs have jobs that cannot be read any more, so that no statement can move them as they are;
-- of those that end, what cannot be read is replaced by what is wrong with it. A job whose claim was
-- reaped has another turn and is left alone. $1 ids, $2 turns, $3 whether the job ends.
WITH damaged AS MATERIALIZED (
    SELECT j.id, said.turn, said.ends
    FROM unnest($1::bigint[], $2::integer[], $3::boolean[]) AS said (id, turn, ends)
    JOIN tenure.job j ON j.id = said.id AND j.turn = said.turn
    WHERE coalesce(tenure.damage(j.payload), tenure.damage(j.meta)) IS NOT NULL),
mended AS (
    UPDATE tenure.job j SET payload = tenure.legible(j.payload), meta = tenure.legible(j.meta)
    FROM damaged d WHERE j.id = d.id AND j.turn = d.turn AND d.ends)
SELECT id FROM damaged;
