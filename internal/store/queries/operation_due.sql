-- In how many ms the next step of an operation is due; null: none is under way. Whether all that are have a rate.
SELECT (extract(epoch FROM min(next_at) - clock_timestamp()) * 1000)::bigint AS due_ms, coalesce(bool_and(per_second IS NOT NULL), false) AS paced
FROM tenure.operation WHERE ended_at IS NULL;
