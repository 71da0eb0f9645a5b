-- The queues and kinds that are frozen, and since when.
SELECT scope, name, since FROM tenure.frozen ORDER BY scope DESC, name;
