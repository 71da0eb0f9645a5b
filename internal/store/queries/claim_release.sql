-- Removes claims whose jobs have all come to an end.
DELETE FROM tenure.claim WHERE id = ANY($1::bigint[]);
