-- Forgets operations that ended longer ago than $1 ms.
DELETE FROM tenure.operation WHERE ended_at < clock_timestamp() - $1::bigint * interval '1 ms';
