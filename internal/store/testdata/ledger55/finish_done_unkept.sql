-- Finishes jobs of one turn and keeps nothing. $1 ids, $2 turn.
DELETE FROM tenure.job WHERE id = ANY($1::bigint[]) AND turn = $2;
