-- Last statement, behind removal_lock, of anyone who changes limits: the holder reads them again before
-- it claims anything.
UPDATE tenure.acquire_lock SET limit_changes = limit_changes + 1 WHERE name = 'acquire';
