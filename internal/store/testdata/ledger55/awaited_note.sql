-- Notes that jobs have ended that others may await; to be run behind the statements that ended them.
-- Where nobody uses batches the table has no page, and the ids are not even read: as a text they cost
-- next to nothing. $1 ids, as an array's text, $2 how: done, dead or cancelled.
SELECT tenure.note_ends($1::text::bigint[], $2::text) WHERE pg_relation_size('tenure.awaited') > 0;
