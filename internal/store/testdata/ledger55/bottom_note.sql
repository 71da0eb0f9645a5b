-- Notes up to which position no job stands, or can appear. $1 session, $2 epoch, $3 the incarnation in which that was
-- found out, $4 the position.
UPDATE tenure.acquire_lock
SET bottom = $4, bottom_incarnation = $3
WHERE name = 'acquire' AND holder = $1 AND epoch = $2 AND tenure.incarnation() = $3
  AND (bottom <> $4 OR bottom_incarnation <> $3);
