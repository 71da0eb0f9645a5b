-- Begins an incarnation of the database unless one has begun. $1 whether to look, too, for
-- sequences that have fallen behind what stands in the tables, and to set them ahead.
SELECT turn, mended FROM tenure.begin_incarnation($1);
